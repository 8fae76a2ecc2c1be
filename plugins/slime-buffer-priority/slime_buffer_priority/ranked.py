"""RankShelf: places drawn by (1 / rank) ** alpha, whatever the size of their priorities (Schaul et al. 2016).

Example:

    shelf = RankShelf(alpha=0.7)
    shelf.put(np.array([0, 1]), np.array([0.0, 3.0]))        # place 1 is drawn 2 ** 0.7 times as often
"""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints
from slime_buffer_priority.race import Drawn, draw
from slime_buffer_priority.ranks import RankIndex
from slime_buffer_priority.shelf import weights_of
from slime_core.sample import Json


class RankShelf:
    """Implements `Shelf`, and the law of its own race, whose places are ranks."""

    def __init__(self, alpha: float) -> None:
        """Hold nothing."""
        self._alpha = alpha
        self._index = RankIndex()
        self._ends: Floats = np.ones(1)

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in."""
        self._index.put(places, keys)

    def change(self, places: Ints, keys: Floats) -> None:
        """Give places new keys."""
        self._index.put(places, keys)

    def remove(self, places: Ints) -> None:
        """Forget places."""
        self._index.remove(places)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """Distinct places, one after another by rank, and their weights."""
        while len(self._ends) < len(self._index):
            self._ends = self.masses(np.arange(2 * len(self._ends))).cumsum()
        drawn = draw(self, want, random)
        places = Drawn(self._index.at(drawn.places), drawn.chances)
        return places.places, weights_of(places, max(1, self.count))

    def state(self) -> dict[str, Json]:
        """The places by rank, which decides between equal keys."""
        return {"base": self._index.base, "order": list(self._index)}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        order = np.array(cast(list[int], state["order"]), np.int64)
        self._index.load(cast(float, state["base"]), order, keys[np.searchsorted(places, order)])

    def __len__(self) -> int:
        """Places held."""
        return len(self._index)

    @property
    def count(self) -> int:
        """Ranks there are."""
        return len(self._index)

    @property
    def size(self) -> int:
        """Ranks are below it; it grows less often than they do."""
        return len(self._ends)

    @property
    def total(self) -> float:
        """Sum of the masses."""
        return float(self._ends[self.count - 1]) if self.count else 0.0

    def find(self, points: Floats) -> Ints:
        """Rank under each point, from 0."""
        return self._ends[: self.count - 1].searchsorted(points, side="right").astype(np.int64, copy=False)

    def masses(self, places: Ints) -> Floats:
        """Masses of some ranks: the first has 1."""
        return np.power(places.astype(np.float64) + 1.0, -self._alpha)

    def everything(self) -> Ints:
        """All ranks."""
        return np.arange(self.count)
