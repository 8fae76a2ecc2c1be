"""RankIndex: places in the order of their keys, highest first; the place at a rank in O(log n).

Keys are sorted into 65,536 buckets, 1,024 for a factor of two, and the buckets are counted by a tree. Priorities that
differ by less than 0.07 % may share a bucket; there, who came later comes later, and whoever leaves gives its rank to
the last. 48 factors of two below the base, all keys count as the same.

Example:

    index.put(np.array([5, 9]), np.array([0.0, 2.5]))
    index.at(np.array([0]))                                  # place 9
"""

from collections.abc import Iterator

import numpy as np

from slime_buffer_priority.arrays import Floats, Ints
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
        self._code: dict[int, int] = {}
        self._position: dict[int, int] = {}
        self._key: dict[int, float] = {}

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in, or give them new keys: [n] each, no place twice."""
        if not len(places):
            return
        if float(keys.max()) > self.base + (_HEADROOM - 1) / _PER_OCTAVE:
            self._rebase(float(keys.max()))
        codes = self._codes(keys)
        moved = list(zip(places.tolist(), codes.tolist(), keys.tolist(), strict=True))
        touched = set()
        for place, code, key in moved:
            old = self._code.get(place)
            if old != code:
                if old is not None:
                    self._take(place)
                    touched.add(old)
                self._append(place, code)
                touched.add(code)
            self._key[place] = key
        self._count(touched)

    def remove(self, places: Ints) -> None:
        """Forget places: [n]."""
        touched = set()
        for place in places.tolist():
            touched.add(self._code[place])
            self._take(place)
            del self._key[place]
        self._count(touched)

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
        return len(self._key)

    def load(self, base: float, places: Ints, keys: Floats) -> None:
        """Continue with places by rank, as iterating gave them, and the base there was."""
        self.__init__()  # type: ignore[misc]
        self.base = base
        self.put(places, keys)

    def _codes(self, keys: Floats) -> Ints:
        codes = np.floor((self.base - keys) * _PER_OCTAVE) + _HEADROOM
        return codes.clip(0, _BUCKETS - 1).astype(np.int64)

    def _append(self, place: int, code: int) -> None:
        row = self._rows.setdefault(code, [])
        self._code[place], self._position[place] = code, len(row)
        row.append(place)

    def _take(self, place: int) -> None:
        code, position = self._code.pop(place), self._position.pop(place)
        row = self._rows[code]
        last = row.pop()
        if last != place:
            row[position] = last
            self._position[last] = position
        if not row:
            del self._rows[code]

    def _count(self, codes: set[int]) -> None:
        places = np.fromiter(codes, np.int64, len(codes))
        self._counts.put(places, np.array([float(len(self._rows.get(code, ()))) for code in codes]))

    def _rebase(self, base: float) -> None:
        places = np.fromiter(self, np.int64, len(self))
        self.load(base, places, np.array([self._key[place] for place in places.tolist()]))
