"""Task: an agent's input. Result: its return value, checked in its process and sent to the driver as JSON.

Example:

    data = verdict_to_json(Result(1.0, turn_rewards=[0.5, 0.0]))        # TypeError, ValueError: not a valid result
    verdict = verdict_from_json(data)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from numbers import Real
from typing import TypeAlias, cast

from slime_core.sample import Json, Message

Reward: TypeAlias = float | dict[str, float] | None
"""Reward of an execution: a number, or parts by name; None: the run's rewards compute it."""


@dataclass(frozen=True, slots=True)
class Result:
    """An agent's return value with more than a final reward."""

    reward: Reward = None
    """Reward of the execution."""
    turn_rewards: Sequence[float] | None = None
    """One for each reply of the model in the main conversation, in order: [replies]; None: no rewards by turn."""
    agents: Mapping[str, Reward] = field(default_factory=dict)
    """Rewards of sub-agents by name, from the header that names them; all other samples get `reward`."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """More data to add to the sample's metadata."""


Verdict: TypeAlias = Reward | Result  # An agent's return value


@dataclass(frozen=True, slots=True)
class Task:
    """One sample, as its agent receives it."""

    prompt: str | list[Message]
    """The row's text or chat messages."""
    label: Json
    """The row's gold answer."""
    url: str
    """Base URL of the model for Anthropic's clients."""
    api_key: str
    """Key of this sample; it is refused once the agent has ended."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The row's metadata."""
    evaluation: bool = False
    """Whether the sample is for evaluation: it is not trained on."""
    model: str = "policy"
    """Name of the model in requests; any name works."""
    sampling: dict[str, float] = field(default_factory=dict)
    """The run's temperature, top_p and max_tokens, named as in requests; they are the defaults of every request."""

    @property
    def openai_base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        return self.url

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def verdict_to_json(verdict: object) -> dict[str, Json]:
    """An agent's return value as JSON. Raises TypeError or ValueError if it is not valid."""
    if not isinstance(verdict, Result):
        return {"reward": _reward(verdict)}
    data: dict[str, Json] = {"reward": _reward(verdict.reward), "metadata": _metadata(verdict.metadata)}
    if verdict.agents:
        data["agents"] = _agents(verdict.agents)
    if verdict.turn_rewards is not None:
        data["turn_rewards"] = _turn_rewards(verdict.turn_rewards)
    return data


def verdict_from_json(data: Mapping[str, Json]) -> Verdict:
    """The verdict in such JSON, read in the driver."""
    reward = cast(Reward, data["reward"])
    if "metadata" not in data:
        return reward
    turns = cast("list[float] | None", data.get("turn_rewards"))
    agents = cast(Mapping[str, Reward], data.get("agents", {}))
    return Result(reward, None if turns is None else tuple(turns), agents, cast(Mapping[str, Json], data["metadata"]))


def _reward(result: object) -> Json:
    match result:
        case None:
            return None
        case Real():
            numbers = {"": float(result)}
        case dict() if result and all(isinstance(value, Real) for value in result.values()):
            numbers = {str(name): float(value) for name, value in result.items()}
        case _:
            raise TypeError(f"the agent returned {result!r:.200}; expected a number, numbers by name, None or Result")
    if not all(map(isfinite, numbers.values())):
        raise ValueError(f"the agent returned {result!r:.200}; expected a finite number, or None for no reward")
    return dict(numbers) if isinstance(result, dict) else numbers[""]


def _agents(value: object) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        raise TypeError(f"the agent returned agents {value!r:.200}; expected rewards by sub-agent name")
    return {str(name): _reward(reward) for name, reward in value.items()}


def _turn_rewards(value: object) -> list[Json]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, Real) for each in value):
        raise TypeError(f"the agent returned turn_rewards {value!r:.200}; expected a number for each reply")
    numbers = [float(each) for each in value]
    if not all(map(isfinite, numbers)):
        raise ValueError(f"the agent returned turn_rewards {value!r:.200}; expected finite numbers")
    return [*numbers]


def _metadata(value: object) -> Json:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"the agent returned metadata {value!r:.200}; expected JSON values by name")
    try:
        return cast(Json, json.loads(json.dumps(dict(value), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the agent returned metadata {value!r:.200}, which is not JSON: {error}") from None
