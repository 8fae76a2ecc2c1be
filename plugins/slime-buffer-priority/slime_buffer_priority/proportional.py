"""ProportionalShelf: places drawn by the power alpha of their priorities (Schaul et al. 2016, section 3.3).

Example:

    shelf = ProportionalShelf(alpha=0.6)
    shelf.put(np.array([0, 1]), np.array([0.0, 3.0]))        # priorities 1 and 8
"""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints, grown
from slime_buffer_priority.race import Race
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

    def __init__(self, alpha: float) -> None:
        """Hold nothing."""
        self._alpha = alpha
        self._tree = SumTree(1)
        self._keys: Floats = np.zeros(1)
        self._base = 0.0
        self._count = 0
        self._race = Race()

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in, or give them new keys."""
        if not len(places):
            return
        self._reach(int(places.max()) + 1)
        self._count += len(places) - int(np.count_nonzero(self._tree.masses(places)))
        self._keys[places] = keys
        masses = self._mass(keys)
        self._tree.put(places, masses)
        if masses.max() > _HIGH:
            self._rebase()

    def remove(self, places: Ints) -> None:
        """Forget places."""
        self._tree.put(places, np.zeros(len(places)))
        self._count -= len(places)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """Distinct places, one after another by mass, and their weights."""
        if self._count and self._tree.total < _LOW:
            self._rebase()
        drawn = self._race.draw(self, want, random)
        return drawn.places, weights_of(drawn, max(1, self._count))

    def state(self) -> dict[str, Json]:
        """The base, and how large the tree is: sums are rounded by its shape."""
        return {"base": self._base, "size": self._tree.size}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._base = cast(float, state["base"])
        self._tree, self._count = SumTree(1), 0
        self._reach(cast(int, state["size"]))
        self._keys[places] = keys
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
        self._base = float(self._keys[places].max())
        self._tree.put(places, self._mass(self._keys[places]))

    def _reach(self, size: int) -> None:
        if size <= self._tree.size and len(self._keys) == self._tree.size:
            return
        tree = SumTree(max(size, self._tree.size))
        tree.put_all(self._tree.every_mass())
        self._tree, self._keys = tree, cast(Floats, grown(self._keys[: tree.size], tree.size))
