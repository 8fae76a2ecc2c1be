"""Interleaving: which member of a mixture each draw goes to, by weight and seed.

A function of (seed, number of the draw), so it has no state. In every `BLOCK` draws a member comes as often as its
share says, rounded up or down at random, so that no batch drifts far from the weights.

Example:

    turns = Interleaving([0.75, 0.25], seed=42)
    turns.member(0)
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random

from slime_core.seeds import derive_seed

BLOCK = 256
"""Draws that are dealt together."""


class Interleaving:
    """Draw -> member."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        """Take the weights, positive and finite, of any sum."""
        total = sum(weights)
        self._bounds = list(accumulate(weight / total for weight in weights))
        self._seed = seed
        self._block: tuple[int, list[int]] = (-1, [])

    def member(self, draw: int) -> int:
        """Number of the member that a draw goes to."""
        number, offset = divmod(draw, BLOCK)
        if self._block[0] != number:
            self._block = (number, self._deal(number))
        return self._block[1][offset]

    def _deal(self, number: int) -> list[int]:
        """One block by systematic sampling, in random order."""
        draw = Random(derive_seed(self._seed, "mixture", number)).random
        start, last = draw(), len(self._bounds) - 1
        members = [min(bisect_right(self._bounds, (turn + start) / BLOCK), last) for turn in range(BLOCK)]
        keys = [draw() for _ in members]
        return [members[turn] for turn in sorted(range(BLOCK), key=keys.__getitem__)]
