"""EpochOrder: a pseudo-random permutation whose every entry is computed when it is asked for.

A shuffled list would stop the loop for a second at each epoch of 10^6 rows and hold 40 MB; this takes two tables of
about 1,000 numbers a round, a microsecond an entry, and can be entered anywhere, which makes a resume exact and cheap.
It owns its random numbers: a generalised Feistel network (Black and Rogaway, "Ciphers with arbitrary finite domains",
CT-RSA 2002) with random tables on a rectangle just larger than the size; what falls outside goes round again.

Example:

    order = EpochOrder(7, seed=derive_seed(42, "train.jsonl", 0))
    sorted(order[i] for i in range(7)) == list(range(7))
"""

from math import isqrt
from random import Random

ROUNDS = 4
"""Each mixes both coordinates once."""
SMALL = 64
"""Up to this size there are twice as many: permutations of five rows are visibly uneven after four, not after eight."""


class EpochOrder:
    """Position in the epoch -> row."""

    def __init__(self, size: int, seed: int) -> None:
        """Draw the tables that the order follows from.

        Args:
            size: rows, at least one.
            seed: decides the order.
        """
        self._size = size
        self._width = isqrt(size - 1) + 1
        self._height = -(-size // self._width)
        # `random()` alone: of all its methods Python promises that this one draws alike in every version.
        draw = Random(seed).random
        self._tables = [
            (
                [int(draw() * self._width) for _ in range(self._height)],
                [int(draw() * self._height) for _ in range(self._width)],
            )
            for _ in range(2 * ROUNDS if size <= SMALL else ROUNDS)
        ]

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self._size:
            raise IndexError(f"position {position} in an epoch of {self._size} rows")
        width, height = self._width, self._height
        while True:
            y, x = divmod(position, width)
            for across, down in self._tables:
                x = (x + across[y]) % width
                y = (y + down[x]) % height
            position = y * width + x
            if position < self._size:
                return position

    def __len__(self) -> int:
        return self._size
