"""Environments of `verifiers`, as small as they come, for tests of what runs them."""

import json

import verifiers as vf
from datasets import Dataset

ROWS = {"question": ["17 + 25?", "1 + 2?"], "answer": ["42", "3"], "info": [json.dumps({"hard": True}), "{}"]}


def load_environment(bonus: float = 0.0) -> vf.Environment:
    """One question, and whether the answer is in what the model says."""

    def right(completion: vf.Messages, answer: str) -> float:
        return float(answer in str(completion[-1].content))

    def hard(info: dict[str, object]) -> float:
        return bonus if info.get("hard") else 0.0

    rubric = vf.Rubric(funcs=[right, hard], weights=[1.0, 0.5])
    return vf.SingleTurnEnv(dataset=Dataset.from_dict(ROWS), system_prompt="Be short.", rubric=rubric)


def load_tools() -> vf.Environment:
    """A calculator; each call of it is worth something, and so is a right answer."""

    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first.
            b: the second.
        """
        if a < 0:
            raise ValueError("no such number")
        return a + b

    def right(completion: vf.Messages, answer: str) -> float:
        return float(answer in str(completion[-1].content))

    return Stepwise(tools=[add], dataset=Dataset.from_dict(ROWS), rubric=vf.Rubric(funcs=[right]), max_turns=4)


class Stepwise(vf.ToolEnv):
    """Says of each step that calls what it is worth."""

    async def add_trajectory_step(self, state: vf.State, trajectory_step: vf.TrajectoryStep) -> None:
        if state["input"]["prompt"][-1]["content"] != "17 + 25?":
            trajectory_step["reward"] = None
        elif trajectory_step["completion"][-1].tool_calls:
            trajectory_step["reward"] = 0.25
        await super().add_trajectory_step(state, trajectory_step)


def load_groups() -> vf.Environment:
    """Rewards that compare."""

    def best(completions: list[vf.Messages]) -> list[float]:
        return [1.0] * len(completions)

    return vf.SingleTurnEnv(dataset=Dataset.from_dict(ROWS), rubric=vf.Rubric(funcs=[best]))


def load_nothing() -> object:
    return {"no": "environment"}
