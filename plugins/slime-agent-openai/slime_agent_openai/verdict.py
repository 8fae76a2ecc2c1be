"""Verdict: what an agent returned, checked where it ran, as JSON for the way to the driver, and back.

Example:

    said = said_of(Result(1.0, turn_rewards=[0.5, 0.0]))        # TypeError, ValueError: what is not a verdict
    verdict = verdict_of(said)
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import cast

from slime_agent_openai.task import Result, Reward, Verdict
from slime_core.sample import Json


def said_of(made: object) -> dict[str, Json]:
    """What an agent returned, if it is a verdict.

    Raises:
        TypeError: it is none, or its metadata is not JSON.
        ValueError: a number in it is not finite.
    """
    if not isinstance(made, Result):
        return {"reward": _reward(made)}
    said: dict[str, Json] = {"reward": _reward(made.reward), "metadata": _metadata(made.metadata)}
    if made.agents:
        said["agents"] = _agents(made.agents)
    if made.turn_rewards is not None:
        said["turn_rewards"] = _turn_rewards(made.turn_rewards)
    return said


def verdict_of(said: Mapping[str, Json]) -> Verdict:
    """The same in the driver."""
    reward = cast(Reward, said["reward"])
    if "metadata" not in said:
        return reward
    turns = cast("list[float] | None", said.get("turn_rewards"))
    agents = cast(Mapping[str, Reward], said.get("agents", {}))
    return Result(reward, None if turns is None else tuple(turns), agents, cast(Mapping[str, Json], said["metadata"]))


def _reward(made: object) -> Json:
    match made:
        case None:
            return None
        case Real():
            numbers = {"": float(made)}
        case dict() if made and all(isinstance(value, Real) for value in made.values()):
            numbers = {str(name): float(value) for name, value in made.items()}
        case _:
            raise TypeError(f"the agent returned {made!r:.200}; expected a number, numbers by name, None, or a Result")
    if not all(map(isfinite, numbers.values())):
        raise ValueError(f"the agent returned {made!r:.200}; expected a finite number, or None where it has no reward")
    return dict(numbers) if isinstance(made, dict) else numbers[""]


def _agents(made: object) -> dict[str, Json]:
    if not isinstance(made, Mapping):
        raise TypeError(f"the agent returned agents {made!r:.200}; expected rewards by the name of a sub-agent")
    return {str(name): _reward(reward) for name, reward in made.items()}


def _turn_rewards(made: object) -> list[Json]:
    if not isinstance(made, Sequence) or isinstance(made, str) or not all(isinstance(each, Real) for each in made):
        raise TypeError(f"the agent returned turn_rewards {made!r:.200}; expected a number for each reply of the model")
    numbers = [float(each) for each in made]
    if not all(map(isfinite, numbers)):
        raise ValueError(f"the agent returned turn_rewards {made!r:.200}; expected finite numbers")
    return [*numbers]


def _metadata(made: object) -> Json:
    if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
        raise TypeError(f"the agent returned metadata {made!r:.200}; expected values of JSON by name")
    try:
        return cast(Json, json.loads(json.dumps(dict(made), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the agent returned metadata {made!r:.200}, which is not JSON: {error}") from None
