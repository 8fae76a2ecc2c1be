"""Turns: rewards by turn in a sample's metadata, as columns for an estimator. Needs no torch.

Example:

    sample.metadata["turn_rewards"] = [[7, 0.5], [19, 0.0]]      # turns end behind tokens 6 and 18 of the response
    [batch_transform]
    use = ["turn_rewards"]
    [advantage]
    use = "turn_level"
"""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from math import isfinite

from pydantic import Field

from slime_core import Group, Sample
from slime_core.roles import Grain, Settings, Setup, ShapeContext
from slime_core.sample import Json

TURN_REWARDS = "turn_rewards"
"""Key of a sample's metadata: `[[end, value], ...]`, `end` the offset, in response tokens, just behind a turn's last.
Column: the value at the turn's last token, 0 elsewhere."""
TURN_INDEX = "turn_index"  # Column: number of a token's turn, from 1
COLUMNS = {TURN_REWARDS: Grain.TOKEN, TURN_INDEX: Grain.TOKEN}  # Columns that `TurnColumns` makes


class TurnLevelSettings(Settings):
    """`[advantage.turn_level]`."""

    gamma: float = Field(1.0, ge=0.0, le=1.0, description="Discount factor per turn for the rewards of later turns.")
    std_normalization: bool = Field(True, description="Divide by the standard deviation of a group's returns.")


class TurnColumns:
    """Implements `slime_core.roles.BatchTransform`: each token's turn, and the reward at the end of each turn.

    A turn reaches from the end of the one before to its own end, so an environment's answer belongs to the turn that
    reads it. Tokens behind the last end belong to the last turn. A sample without rewards by turn is one turn.
    """

    def __init__(self, settings: Settings, setup: Setup) -> None:
        """Both arguments are ignored."""

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        """Both columns, [response_length] each. Raises ValueError: the metadata under that key has another format."""
        turns, length = _turns(sample), sample.response_length
        values = [0.0] * length
        for end, value in turns:
            values[end - 1] = value
        ends = [0, *(end for end, _ in turns[:-1]), length]  # the last turn includes the rest
        index = [[float(turn)] * (end - before) for turn, (before, end) in enumerate(pairwise(ends), 1)]
        return {TURN_REWARDS: values, TURN_INDEX: list(chain.from_iterable(index))}


def _turns(sample: Sample) -> list[tuple[int, float]]:
    """Ends and values of the turns. Raises ValueError: wrong format or order."""
    entries = sample.metadata.get(TURN_REWARDS)
    if entries is None:
        return []
    turns: list[tuple[int, float]] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        turn = _turn(entry)
        if turn is None or not (turns[-1][0] if turns else 0) < turn[0] <= sample.response_length:
            raise ValueError(
                f"sample {sample.index} of group {sample.group_index} has metadata {TURN_REWARDS!r}: {entries!r:.200}; "
                f"expected [[end, value], ...] with rising ends from 1 to {sample.response_length} and finite values"
            )
        turns.append(turn)
    return turns


def _turn(entry: Json) -> tuple[int, float] | None:
    match entry:
        case [int() as end, int() | float() as value] if isfinite(value):
            return end, float(value)
    return None
