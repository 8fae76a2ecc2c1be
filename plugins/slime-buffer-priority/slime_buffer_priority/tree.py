"""SumTree: masses of many places; find the place under a point of their sum, or change some, in O(log n) each.

Each inner node holds the sum of two children, computed anew whenever one changes, so rounding does not pile up.
The topmost levels are one array of at most 4,096 sums, searched by bisection: eight steps of numpy fewer.

Example:

    tree = SumTree(size=4)
    tree.put(np.array([0, 3]), np.array([1.0, 3.0]))
    tree.find(np.array([0.5, 1.5]))                      # places 0 and 3; the points left over: 0.5 and 0.5
"""

import numpy as np

from slime_buffer_priority.arrays import Floats, Ints

_TOP = 4096


class SumTree:
    """Places 0 to `size` - 1, each with a mass of 0 or more."""

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

        By rounding, one point in about 1e15 may end on a place without mass: the caller looks, and draws again.
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
