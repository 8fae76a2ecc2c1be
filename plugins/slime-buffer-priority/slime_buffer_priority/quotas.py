"""Quotas: how many of each draw come from which source; fractions are carried over to the next draw.

Example:

    quotas = Quotas({"math": 0.75})
    quotas.split(10, held=[100, 100])            # [8, 2]: math, all others
    quotas.split(10, held=[100, 100])            # [7, 3]
"""

import math
from collections.abc import Mapping, Sequence

from slime_core.sample import Json


class Quotas:
    """Shares of the draws, by source; the last one is of all others."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        """Shares sum to 1 at most; what is left is the others'."""
        self.names = tuple(shares)
        """The sources that have a share."""
        self._number = {name: number for number, name in enumerate(self.names)}
        self._shares = [*shares.values(), max(0.0, 1.0 - sum(shares.values()))]
        self._credit = [0.0] * len(self._shares)

    def of(self, source: str) -> int:
        """Number of a source's share; unnamed sources have the last."""
        return self._number.get(source, len(self.names))

    def split(self, want: int, held: Sequence[int]) -> list[int]:
        """How many to draw of each, at most what is held; a source that has too few leaves its share to the others."""
        if len(held) == 1:
            return [min(want, held[0])]
        credit = [old + want * share for old, share in zip(self._credit, self._shares, strict=True)]
        counts, spare = [0] * len(held), want
        for number in sorted(range(len(held)), key=lambda each: -credit[each]):
            counts[number] = min(held[number], spare, max(0, math.floor(credit[number] + 1e-9)))
            spare -= counts[number]
        while spare and (roomy := [number for number, count in enumerate(counts) if count < held[number]]):
            number = max(roomy, key=lambda each: (credit[each] - counts[each], self._shares[each]))
            more = 1 if len(roomy) > 1 else min(spare, held[number] - counts[number])
            counts[number] += more
            spare -= more
        # A source that was empty for long must not fill whole draws later: nobody owes more than one group.
        self._credit = [min(1.0, max(-1.0, due - count)) for due, count in zip(credit, counts, strict=True)]
        return counts

    def state(self) -> list[Json]:
        """What is carried over."""
        return [*self._credit]

    def load(self, credit: Sequence[float]) -> None:
        """Continue."""
        self._credit = list(credit)
