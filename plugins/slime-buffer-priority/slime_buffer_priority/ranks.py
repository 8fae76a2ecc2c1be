"""RankIndex: places in the order of their keys, highest first; the place at a rank in O(log n).

Keys are sorted into 65,536 buckets, 1,024 for a factor of two, and the buckets are counted by a tree. Priorities that
differ by less than 0.07 % may share a bucket; there, who came later comes later, and whoever leaves gives its rank to
the last. 48 factors of two below the base, all keys count as the same.

Example:

    index.put(np.array([5, 9]), np.array([0.0, 2.5]))
    index.at(np.array([0]))                                  # place 9
"""

from collections.abc import Iterator
from typing import cast

import numpy as np

from slime_buffer_priority.arrays import Floats, Ints, grown
from slime_buffer_priority.tree import SumTree

_BUCKETS, _PER_OCTAVE, _HEADROOM = 65_536, 1_024, 16_384


class RankIndex:
    """Places by falling key."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.base = 0.0
        """Key of the bucket that has 16 factors of two above it; the highest key, when the last one did not fit."""
        self._rows: dict[int, list[int]] = {}
        self._counts = SumTree(_BUCKETS)
        self._codes: Ints = np.zeros(0, np.int64)
        self._keys: Floats = np.zeros(0)
        self._position: list[int] = []
        self._held = 0

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in, or give them new keys: [n] each, no place twice."""
        if not len(places):
            return
        if float(keys.max()) > self.base + (_HEADROOM - 1) / _PER_OCTAVE:
            self._rebase(float(keys.max()))
        self._reach(int(places.max()) + 1)
        self._keys[places] = keys
        codes, old = self._code_of(keys), self._codes.take(places)
        moves = codes != old
        codes, old, places = codes[moves], old[moves], places[moves]
        self._leave(places[old >= 0], old[old >= 0])
        self._held += int(np.count_nonzero(old < 0))
        self._codes[places] = codes
        rows, position = self._rows, self._position
        for place, code in zip(places.tolist(), codes.tolist(), strict=True):
            row = rows.get(code)
            if row is None:
                row = rows[code] = []
            position[place] = len(row)
            row.append(place)
        self._count(np.concatenate((codes, old[old >= 0])))

    def remove(self, places: Ints) -> None:
        """Forget places: [n]."""
        codes = self._codes.take(places)
        self._leave(places, codes)
        self._codes[places] = -1
        self._held -= len(places)
        self._count(codes)

    def at(self, ranks: Ints) -> Ints:
        """Places at ranks, the highest key at 0: [n]."""
        codes, rest = self._counts.find(ranks.astype(np.float64) + 0.5)
        rows = zip(codes.tolist(), rest.astype(np.int64).tolist(), strict=True)
        return np.array([self._rows[code][position] for code, position in rows], np.int64)

    def __iter__(self) -> Iterator[int]:
        """All places by rank."""
        for code in sorted(self._rows):
            yield from self._rows[code]

    def __len__(self) -> int:
        """Places held."""
        return self._held

    def load(self, base: float, places: Ints, keys: Floats) -> None:
        """Continue with places by rank, as iterating gave them, and the base there was."""
        self.__init__()  # type: ignore[misc]  # this very class, emptied
        self.base = base
        self.put(places, keys)

    def _code_of(self, keys: Floats) -> Ints:
        codes = np.floor((self.base - keys) * _PER_OCTAVE) + _HEADROOM
        return codes.clip(0, _BUCKETS - 1).astype(np.int64)

    def _leave(self, places: Ints, codes: Ints) -> None:
        rows, position = self._rows, self._position
        for place, code in zip(places.tolist(), codes.tolist(), strict=True):
            row = rows[code]
            last = row.pop()
            if last != place:
                row[position[place]] = last
                position[last] = position[place]
            if not row:
                del rows[code]

    def _count(self, codes: Ints) -> None:
        touched = np.unique(codes)
        self._counts.put(touched, np.array([float(len(self._rows.get(code, ()))) for code in touched.tolist()]))

    def _reach(self, size: int) -> None:
        if size > len(self._position):
            room = 1 << (size - 1).bit_length()
            self._keys = cast(Floats, grown(self._keys, room))
            # One more, so that a place without a code has -1.
            self._codes = cast(Ints, grown(self._codes + 1, room)) - 1
            self._position += [0] * (room - len(self._position))

    def _rebase(self, base: float) -> None:
        places = np.fromiter(self, np.int64, len(self))
        self.load(base, places, self._keys.take(places))
