"""Orders of places (row numbers of groups): by mass (`SumTree`), by arrival (`Queue`).

Example:

    tree = SumTree(size=4)
    tree.put(np.array([0, 3]), np.array([1.0, 3.0]))
    tree.find(np.array([0.5, 1.5]))                      # places 0 and 3; the points left over: 0.5 and 0.5
"""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import TypeAlias, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slime_core.sample import Json

Ints: TypeAlias = NDArray[np.int64]
"""Places, codes, counts: [n]."""
Floats: TypeAlias = NDArray[np.float64]
"""Masses, keys, points, times: [n]."""
Bools: TypeAlias = NDArray[np.bool_]
"""Boolean masks: [n]."""

_TOP = 4096


def grown(array: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    """The array, padded with zeros to a size."""
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger


class SumTree:
    """Places 0 to `size` - 1 with a mass of 0 or more each; one is found or changed in O(log n).

    Each inner node is the sum of its two children, computed from them at every change, so rounding does not add up. The
    top is one array of at most 4,096 sums, searched by bisection: eight steps of numpy fewer.
    """

    def __init__(self, size: int) -> None:
        """All masses 0; the size is rounded up to a power of two."""
        self._levels = [np.zeros(1 << max(0, size - 1).bit_length())]
        while len(self._levels[-1]) > _TOP:
            self._levels.append(np.zeros(len(self._levels[-1]) // 2))
        self._ends: Floats | None = None

    @property
    def size(self) -> int:
        """Number of places."""
        return len(self._levels[0])

    @property
    def total(self) -> float:
        """Sum of all masses."""
        return float(self._top()[-1])

    def masses(self, places: Ints) -> Floats:
        """Masses of some places: [n]."""
        return self._levels[0].take(places)

    def every_mass(self) -> Floats:
        """Masses of all places, not to be changed: [size]."""
        return self._levels[0]

    def put(self, places: Ints, masses: Floats) -> None:
        """Give places new masses: [n] each, no place twice."""
        self._levels[0][places] = masses
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            places = places >> 1
            left = places << 1
            level[places] = below.take(left) + below.take(left + 1)
        self._ends = None

    def put_all(self, masses: Floats) -> None:
        """Give all places new masses: [n <= size], the rest 0."""
        self._levels[0][:] = 0.0
        self._levels[0][: len(masses)] = masses
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            np.add(below[0::2], below[1::2], out=level)
        self._ends = None

    def find(self, points: Floats) -> tuple[Ints, Floats]:
        """Place under each point of [0, total), and how far into its mass the point lies: [n] each.

        By rounding, one point in about 1e15 may end on a place without mass: the caller checks, and draws again.
        """
        ends = self._top()
        node = ends.searchsorted(points, side="right").astype(np.int64, copy=False)
        np.minimum(node, len(ends) - 1, out=node)
        rest = points - np.where(node > 0, ends.take(node - 1), 0.0)
        for level in self._levels[-2::-1]:
            node <<= 1
            left = level.take(node)
            right = rest >= left
            rest -= left * right
            node += right
        return node, rest

    def _top(self) -> Floats:
        if self._ends is None:
            self._ends = self._levels[-1].cumsum()
        return self._ends


class Queue:
    """Places in order of arrival: a shelf that draws first in, first out, and the order in which a full buffer shrinks.

    An OrderedDict, because a dict skips over every removed entry each time it looks for its first.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[int, None] = OrderedDict()

    def put(self, places: Ints, keys: Floats | None = None) -> None:
        """Append places; a place that is already queued keeps its position: [n]."""
        self._places.update(dict.fromkeys(places.tolist()))

    def change(self, places: Ints, keys: Floats) -> None:
        """Do nothing: keys do not matter."""

    def remove(self, places: Ints) -> None:
        """Remove places, if they are there: [n]."""
        for place in places.tolist():
            self._places.pop(place, None)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """The oldest places, each with weight 1; they move to the end."""
        places = np.array(list(islice(self._places, want)), np.int64)
        self.remove(places)
        self.put(places)
        return places, np.ones(len(places))

    def surplus(self, capacity: int) -> Ints:
        """The oldest places, beyond the capacity; the caller removes them."""
        return np.array(list(islice(self._places, max(0, len(self) - capacity))), np.int64)

    def state(self) -> dict[str, Json]:
        """The places in order."""
        return {"order": list(self._places)}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Restore the saved order."""
        self._places = OrderedDict.fromkeys(cast(list[int], state["order"]))

    def __len__(self) -> int:
        return len(self._places)
