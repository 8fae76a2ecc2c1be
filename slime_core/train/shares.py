"""Shares: a step's batches dealt to ranks, several of which may have one, and one report of each. No torch.

Example:

    shares = Shares((0, 0, 1, 1), plugin="slime-trainer-mega")       # two ranks a replica, two replicas
    shares.dealt([batch_0, batch_1])                                 # [batch_0, batch_0, batch_1, batch_1]
    shares.agreed(results)                                           # those of ranks 0 and 2, if their peers agree
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slime_core.errors import ContractError
from slime_core.roles import StepResult

T = TypeVar("T")
CLOSE = 1e-4
"""How far apart, relatively, two ranks may find one number: kernels that add in any order do not give the same bits."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Which part of a step's samples each rank computes; ranks that hold parts of one model have the same."""

    of_ranks: Sequence[int]
    """The share of each rank, from 0 without gaps."""
    plugin: str
    """Whose trainer it is."""

    @property
    def count(self) -> int:
        """How many parts a step has."""
        return max(self.of_ranks) + 1

    @property
    def reporting(self) -> Sequence[int]:
        """For each share the rank whose report counts: its first."""
        return [self.of_ranks.index(share) for share in range(self.count)]

    def dealt(self, of_shares: Sequence[T]) -> list[T]:
        """The part of each rank, from parts by share."""
        return [of_shares[share] for share in self.of_ranks]

    def agreed(self, results: Sequence[StepResult]) -> list[StepResult]:
        """One report for each share, from one report for each rank.

        Raises:
            ContractError: two ranks of one share report different things.
        """
        reporting = self.reporting
        for rank, share in enumerate(self.of_ranks):
            first = reporting[share]
            if (what := next(_differences(results[first], results[rank]), None)) is not None:
                raise ContractError(
                    f"trainer of plugin {self.plugin}: ranks {first} and {rank} train on share {share} together, and "
                    f"report different things: {what[0]} is {what[1]} on rank {first} and {what[2]} on rank {rank}; "
                    "add up, or send to all, what ranks of one replica report"
                )
        return [results[rank] for rank in reporting]


def _differences(one: StepResult, other: StepResult) -> Iterator[tuple[str, object, object]]:
    """Values that two ranks of one share report differently."""
    if one.tokens != other.tokens:
        yield "tokens", one.tokens, other.tokens
    if one.over_all_tokens != other.over_all_tokens:
        yield "over_all_tokens", sorted(one.over_all_tokens), sorted(other.over_all_tokens)
    # Sums of positive and negative numbers may be near 0, where a relative tolerance means nothing.
    slack = CLOSE / 100 * max(1, one.tokens)
    yield from _far("metrics", one.metrics, other.metrics, slack)
    yield from _far("scalars", one.scalars, other.scalars, CLOSE)
    mine, theirs = ({str(group): score for group, score in each.scores.items()} for each in (one, other))
    yield from _far("scores of group", mine, theirs, CLOSE)


def _far(
    kind: str, one: Mapping[str, float], other: Mapping[str, float], slack: float
) -> Iterator[tuple[str, object, object]]:
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if mine is None or theirs is None or not _is_close(mine, theirs, slack):
            yield f"{kind} {name!r}", mine, theirs


def _is_close(one: float, other: float, slack: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=slack) or (math.isnan(one) and math.isnan(other))
