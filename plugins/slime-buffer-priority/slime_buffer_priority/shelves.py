"""Draws of distinct places by their masses.

A key is the logarithm (base 2) of a priority. Every place has a clock that rings at a random time, exponential with its
mass as the rate; the draw is the first `want` to ring. That is drawing one after another without putting back. Given
the time t at which the next one rings, a place of mass m is in the draw with probability 1 - exp(-m t); weights of one
over it are unbiased (Cohen and Kaplan 2007, bottom-k sketches; Duffield, Lund and Thorup 2007, priority sampling;
doi:10.1145/1281100.1281133, doi:10.1145/1314690.1314696).

Example:

    shelf = ProportionalShelf(alpha=0.6, keys_at=keys.take)
    shelf.put(np.array([0, 1]), keys)                        # keys 0.0 and 3.0 are priorities 1 and 8
    places, weights = shelf.draw(256, random)
"""

from collections.abc import Callable, Mapping
from typing import Protocol, cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.places import Floats, Ints, SumTree
from slime_core.sample import Json

_ROUNDS = 3
_RANGE = 500.0
_HIGH, _LOW = 2.0**400, 2.0**-300


class Shelf(Protocol):
    """The places of one source, each with its key."""

    def put(self, places: Ints, keys: Floats) -> None:
        """Add places: [n] each, no place twice."""
        ...

    def change(self, places: Ints, keys: Floats) -> None:
        """Give held places new keys: [n] each, no place twice."""
        ...

    def remove(self, places: Ints) -> None:
        """Remove places: [n]."""
        ...

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """At most `want` distinct places and their weights: [n] each.

        A weight is the draw's size, divided by the number of held places and by the place's inclusion probability.
        The weighted mean over a draw is an unbiased estimate of the mean over all held places.
        """
        ...

    def state(self) -> dict[str, Json]:
        """What `load` cannot derive from the keys."""
        ...

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Restore the saved state, with the held places in ascending order and their keys: [n] each."""
        ...

    def __len__(self) -> int:
        """Places held."""
        ...


def draw(law: "ProportionalShelf", want: int, random: Generator) -> tuple[Ints, Floats]:
    """The first `want` places to ring, in rising order, and the probability of each to be among them: [n] each."""
    want = min(want, law.count)
    if want == 0:
        return np.zeros(0, np.int64), np.zeros(0)
    places, times = _first(law, want + 1, random)
    # Sorted by memory position: fetching 4,096 of a million groups then takes half the time.
    chosen = np.sort(places[:want])
    if len(places) <= want:
        return chosen, np.ones(len(chosen))
    return chosen, -np.expm1(-law.masses(chosen) * times[want])


def _first(law: "ProportionalShelf", want: int, random: Generator) -> tuple[Ints, Floats]:
    """Places in the order of their rings, and the times: at least `want` of them, or all."""
    places, times, now = np.zeros(0, np.int64), np.zeros(0), 0.0
    # All clocks together ring at the rate of the total mass; a repeated ring is skipped. Ringing each clock once is
    # cheaper where most rings would repeat, because few places are left or few hold the mass.
    for _ in range(_ROUNDS if 4 * want <= law.count else 0):
        rings = want - len(places) + 8 + want // 16
        gaps = random.standard_exponential(rings) / law.total
        later = now + gaps.cumsum()
        now = float(later[-1])
        found = random.permutation(law.find(np.sort(random.random(rings)) * law.total))
        places, times = np.concatenate((places, found)), np.concatenate((times, later))
        in_order = np.sort(places)
        if (in_order[1:] == in_order[:-1]).any():
            firsts = np.sort(np.unique(places, return_index=True)[1])
            places, times = places[firsts], times[firsts]
        real = law.masses(places) > 0
        if not real.all():
            places, times = places[real], times[real]
        if len(places) >= want:
            return places, times
    return _every_clock(law, want, random, (places, times), now)


def _every_clock(
    law: "ProportionalShelf", want: int, random: Generator, rang: tuple[Ints, Floats], now: float
) -> tuple[Ints, Floats]:
    """Like `_first` for any masses, in O(count): clocks that have not rung by `now` restart then."""
    places = law.everything()
    times = now + random.standard_exponential(len(places)) / law.masses(places)
    where = np.full(law.size, -1)
    where[places] = np.arange(len(places))
    times[where[rang[0]]] = rang[1]
    if want < len(places):
        nearest = np.argpartition(times, want - 1)[:want]
        places, times = places[nearest], times[nearest]
    order = np.argsort(times, kind="stable")
    return places[order], times[order]


def _weights(chances: Floats, held: int) -> Floats:
    return (len(chances) / max(1, held)) / np.maximum(chances, np.finfo(np.float64).tiny)


class ProportionalShelf:
    """Draws by the power alpha of the priorities (Schaul et al. 2016, section 3.3): masses 2 ** (alpha * (key - base)).

    Keys of recency and staleness grow without limit, so the base follows them, at a cost of O(n) each time.
    Masses are clamped to at least 2 ** -500, and stay below 2 ** 500.
    """

    def __init__(self, alpha: float, keys_at: Callable[[Ints], Floats]) -> None:
        """Create an empty shelf; `keys_at` returns the keys of held places."""
        self._alpha, self._keys_at = alpha, keys_at
        self._tree, self._base = SumTree(1), 0.0
        self.count = 0
        """Places held."""

    def put(self, places: Ints, keys: Floats) -> None:
        """Add places."""
        if len(places):
            self._reach(int(places.max()) + 1)
            self.count += len(places)
            self.change(places, keys)

    def change(self, places: Ints, keys: Floats) -> None:
        """Give places new keys."""
        masses = self._mass(keys)
        self._tree.put(places, masses)
        if masses.max(initial=0.0) > _HIGH:
            self._rebase()

    def remove(self, places: Ints) -> None:
        """Remove places."""
        self._tree.put(places, np.zeros(len(places)))
        self.count -= len(places)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """Distinct places by mass, and their weights."""
        if self.count and self._tree.total < _LOW:
            self._rebase()
        places, chances = draw(self, want, random)
        return places, _weights(chances, self.count)

    def state(self) -> dict[str, Json]:
        """The base and the tree's size, which determines how its sums are rounded."""
        return {"base": self._base, "size": self._tree.size}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Restore the saved state."""
        self._base, self._tree = cast(float, state["base"]), SumTree(1)
        self._reach(cast(int, state["size"]))
        self.count = len(places)
        self._tree.put(places, self._mass(keys))

    def __len__(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        """Upper bound (exclusive) of the places."""
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
