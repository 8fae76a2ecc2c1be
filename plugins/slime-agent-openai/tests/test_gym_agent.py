"""The example with reasoning-gym: its agent in worker processes, over HTTP, against an engine with a script."""

import json
from pathlib import Path

import pytest
from run_generator import generated, generator_named
from talker import Talker

from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_testing import make_pending

pytest.importorskip("reasoning_gym", reason="needs reasoning-gym: `make peers`")
pytest.importorskip("openai", reason="needs the extra `dev`")

AGENT = Path(__file__).parents[3] / "examples" / "agents" / "gym_agent.py"
pytestmark = pytest.mark.skipif(not AGENT.exists(), reason="needs a checkout")


def call(name: str = "calculate", **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def play(tokenizer: HfTokenizer, *says: str) -> tuple[Sample, list[str]]:
    """The sample of one task, and the prompts of its turns."""
    talker = Talker(tokenizer, lambda prompt, turn: says[turn])
    pending = make_pending(prompt="What is 17 * 25?", label="425")
    pending.metadata = {"source_dataset": "products"}
    generator = generator_named("agent", agent=f"{AGENT}:calculator", workers=1)
    ((sample,),) = generated(generator, talker, pending, max_new_tokens=4000)
    return sample, [tokenizer.decode(asked.prompt) for asked in talker.log]


def test_tool_call_is_answered_and_the_dataset_scores(tokenizer: HfTokenizer) -> None:
    sample, prompts = play(
        tokenizer, call(expression="17 * (20 + 5)"), "So: <answer>1</answer>, no, <answer>425</answer>"
    )
    assert (sample.status, sample.reward) == (Status.COMPLETED, 1.0)
    assert "<tool_response>\n425\n</tool_response>" in prompts[1]
    assert [value for _, value in sample.metadata["turn_rewards"]] == [0.0, 0.0]  # type: ignore[misc, union-attr]


def test_failed_calls_cost_their_turns(tokenizer: HfTokenizer) -> None:
    expressions = ("__import__('os').getpid()", "2 ** 9", "1 / 0", "1" * 300, 7)
    sample, prompts = play(tokenizer, *(call(expression=each) for each in expressions), call(wrong="1 + 1"))
    assert (sample.status, sample.reward) == (Status.COMPLETED, 0.0)
    assert prompts[-1].count("<tool_response>\nerror\n</tool_response>") == 5
    assert [value for _, value in sample.metadata["turn_rewards"]] == [-0.1] * 6  # type: ignore[misc, union-attr]
