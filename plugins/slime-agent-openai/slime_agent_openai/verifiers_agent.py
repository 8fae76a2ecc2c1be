"""Runs `verifiers` environments as agents: rollouts query the gateway, and the environment's rubric scores them.

Rewards that an environment gives to single steps become rewards by turn. Its data set becomes prompts:

    python -m slime_agent_openai.verifiers_agent ./my_env.py > prompts.jsonl
"""

import argparse
import importlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from math import isfinite
from numbers import Real
from typing import Protocol, TypeAlias, cast

from slime_agent_openai.reference import resolve
from slime_agent_openai.settings import reference_of
from slime_agent_openai.task import Result, Task
from slime_core.errors import ConfigError, SlimeError
from slime_core.sample import Json

LIMITS = ("turn_limit", "context_length_exceeded")
"""The gateway's error codes after which a rollout is truncated and scored."""
State: TypeAlias = MutableMapping[str, object]  # A rollout's state in `verifiers`


class EnvironmentFailed(SlimeError):
    """A rollout ended with an error of the model, of a tool or of the environment itself."""


class _Rubric(Protocol):
    """The part of a rubric that is used here."""

    async def score_rollout(self, state: State) -> None: ...
    async def cleanup(self, state: State) -> None: ...


class _Environment(Protocol):
    """The part of an environment that is used here."""

    @property
    def rubric(self) -> _Rubric: ...
    @property
    def requires_group_rollouts(self) -> bool: ...
    async def rollout(self, row: Mapping[str, object], client: object, model: str, sampling: object) -> State: ...
    def get_dataset(self) -> Iterable[Mapping[str, Json]]: ...
    def get_eval_dataset(self) -> Iterable[Mapping[str, Json]]: ...


def agent(environment: str, arguments: Mapping[str, Json]) -> Callable[[Task], Awaitable[Result]]:
    """Load an environment; returns a function that runs it on a task."""
    env = _load(environment, arguments)
    if env.requires_group_rollouts:
        raise ConfigError(
            f"the rubric of environment {environment!r} has a reward that needs a whole group, but this generator "
            "scores each rollout separately. Remove it from the rubric and write it as a group reward"
        )
    client_of = _clients().OpenAIChatCompletionsClient
    openai_client = importlib.import_module("openai").AsyncOpenAI

    async def solve(task: Task) -> Result:
        async with openai_client(base_url=task.openai_base_url, api_key=task.api_key, timeout=None) as client:
            state = await env.rollout(_row(task), client_of(client), task.model, {})
            error = state.get("error")
            if error is not None and not _is_limit(error):
                raise EnvironmentFailed(repr(error)) from (error if isinstance(error, BaseException) else None)
            steps = cast(Sequence[Mapping[str, object]], state["trajectory"])
            turns = [step.get("reward") for step in steps]  # before the rubric fills the gaps
            try:
                await env.rubric.score_rollout(state)
            finally:
                await env.rubric.cleanup(state)
        return _result(state, turns)

    return solve


def rows_of(environment: str, arguments: Mapping[str, Json], *, evaluation: bool = False) -> Iterable[dict[str, Json]]:
    """Data set of an environment, as rows of prompt, answer and metadata."""
    env = _load(environment, arguments)
    for row in env.get_eval_dataset() if evaluation else env.get_dataset():
        rest = {name: value for name, value in row.items() if name not in ("prompt", "answer")}
        yield {"prompt": _without_none(row["prompt"]), "answer": row.get("answer"), "metadata": rest}


def _is_limit(error: object) -> bool:
    while error is not None and getattr(error, "code", None) not in LIMITS:
        error = getattr(error, "__cause__", None)
    return error is not None


def _row(task: Task) -> dict[str, object]:
    prompt = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else task.prompt
    answer = {} if task.label is None else {"answer": task.label}
    return {"example_id": 0, **task.metadata, **answer, "prompt": prompt}


def _result(state: State, turns: Sequence[object]) -> Result:
    """The rubric's reward, with its other metrics as parts; rewards by turn if a step has one."""
    metrics = cast(Mapping[str, object], state.get("metrics") or {})
    parts = {name: float(value) for name, value in metrics.items() if isinstance(value, Real) and isfinite(value)}
    reward = parts | {"score": cast(float, state["reward"])}
    by_turn = [cast(float, each or 0.0) for each in turns] if any(each is not None for each in turns) else None
    return Result(reward, by_turn, metadata={"stop_condition": cast(Json, state.get("stop_condition"))})


def _load(environment: str, arguments: Mapping[str, Json]) -> _Environment:
    _clients()
    env = resolve(reference_of(environment))(**arguments)
    if not callable(getattr(env, "rollout", None)) or not hasattr(env, "rubric"):
        raise ConfigError(f"{environment!r} returned {env!r:.200}, which is not an environment of verifiers")
    return cast(_Environment, env)


class _Clients(Protocol):
    """The part of `verifiers.clients` that is used here."""

    OpenAIChatCompletionsClient: Callable[[object], object]


def _clients() -> _Clients:
    try:
        return cast(_Clients, importlib.import_module("verifiers.clients"))
    except ImportError as error:
        raise ConfigError(
            f"verifiers cannot be imported ({error}). Install the extra `verifiers` of slime-agent-openai, which "
            "requires verifiers>=0.3,<0.4: later releases have no load_environment"
        ) from None


def _without_none(value: Json) -> Json:
    """The value without null fields, which tables add to messages that lack them."""
    if isinstance(value, dict):
        return {name: _without_none(each) for name, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    """Write an environment's rows to standard output, one JSON line each."""
    parser = argparse.ArgumentParser(prog="python -m slime_agent_openai.verifiers_agent", description=main.__doc__)
    parser.add_argument("environment", help="an installed package, or ./file.py:function")
    parser.add_argument("--arguments", type=json.loads, default={}, help="its keyword arguments, as JSON")
    parser.add_argument("--evaluation", action="store_true", help="write the evaluation data set")
    options = parser.parse_args()
    for row in rows_of(options.environment, options.arguments, evaluation=options.evaluation):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
