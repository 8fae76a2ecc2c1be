"""ProportionalShelf: places drawn by the power alpha of their priorities (Schaul et al. 2016, section 3.3).

Example:

    shelf = ProportionalShelf(alpha=0.6, keys_at=keys.take)
    shelf.put(np.array([0, 1]), keys)                        # keys 0.0 and 3.0 are priorities 1 and 8
"""

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints
from slime_buffer_priority.race import draw
from slime_buffer_priority.shelf import weights_of
from slime_buffer_priority.tree import SumTree
from slime_core.sample import Json

_RANGE = 500.0
_HIGH, _LOW = 2.0**400, 2.0**-300


class ProportionalShelf:
    """Implements `Shelf`, and the law of its own race. A mass is 2 ** (alpha * (key - base)).

    Keys of recency and staleness grow without end, so the base moves up behind them, at a cost of O(n) each time.
    Masses stay within 2 ** -500 and 2 ** 500: what lies below counts as much as 2 ** -500.
    """

    def __init__(self, alpha: float, keys_at: Callable[[Ints], Floats]) -> None:
        """Hold nothing; `keys_at` tells the keys of places, once they were put."""
        self._alpha = alpha
        self._keys_at = keys_at
        self._tree = SumTree(1)
        self._base = 0.0
        self._count = 0

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in."""
        if len(places):
            self._reach(int(places.max()) + 1)
            self._count += len(places)
            self.change(places, keys)

    def change(self, places: Ints, keys: Floats) -> None:
        """Give places new keys."""
        masses = self._mass(keys)
        self._tree.put(places, masses)
        if masses.max(initial=0.0) > _HIGH:
            self._rebase()

    def remove(self, places: Ints) -> None:
        """Forget places."""
        self._tree.put(places, np.zeros(len(places)))
        self._count -= len(places)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """Distinct places, one after another by mass, and their weights."""
        if self._count and self._tree.total < _LOW:
            self._rebase()
        drawn = draw(self, want, random)
        return drawn.places, weights_of(drawn, max(1, self._count))

    def state(self) -> dict[str, Json]:
        """The base, and how large the tree is: sums are rounded by its shape."""
        return {"base": self._base, "size": self._tree.size}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._base = cast(float, state["base"])
        self._tree, self._count = SumTree(1), 0
        self._reach(cast(int, state["size"]))
        self._count = len(places)
        self._tree.put(places, self._mass(keys))

    def __len__(self) -> int:
        """Places held."""
        return self._count

    @property
    def count(self) -> int:
        """Places held."""
        return self._count

    @property
    def size(self) -> int:
        """Places are below it."""
        return self._tree.size

    @property
    def total(self) -> float:
        """Sum of the masses."""
        return self._tree.total

    def find(self, points: Floats) -> Ints:
        """Place under each point."""
        return self._tree.find(points)[0]

    def masses(self, places: Ints) -> Floats:
        """Masses of some places."""
        return self._tree.masses(places)

    def everything(self) -> Ints:
        """All places held."""
        return np.flatnonzero(self._tree.every_mass())

    def _mass(self, keys: Floats) -> Floats:
        return np.exp2(np.clip(self._alpha * (keys - self._base), -_RANGE, _RANGE))

    def _rebase(self) -> None:
        places = self.everything()
        keys = self._keys_at(places)
        self._base = float(keys.max())
        self._tree.put(places, self._mass(keys))

    def _reach(self, size: int) -> None:
        if size > self._tree.size:
            tree = SumTree(size)
            tree.put_all(self._tree.every_mass())
            self._tree = tree
