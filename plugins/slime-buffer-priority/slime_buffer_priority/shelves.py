"""Draws of distinct places by a law, and which places leave a full buffer.

A key is the logarithm (base 2) of a priority. Every place has a clock that rings at a random time, exponential with its
mass as the rate; the draw is the first `want` to ring. That is drawing one after another without putting back. Given
the time t at which the next one rings, a place of mass m is among them with probability 1 - exp(-m t), which makes
weights 1 / that unbiased (Cohen and Kaplan 2007, bottom-k sketches; Duffield, Lund and Thorup 2007, priority sampling;
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

from slime_buffer_priority.places import Floats, Ints, Queue, RankIndex, SumTree
from slime_core.sample import Json

_ROUNDS = 3
_RANGE = 500.0
_HIGH, _LOW = 2.0**400, 2.0**-300


class Held(Protocol):
    """Held places, each with its key."""

    def put(self, places: Ints, keys: Floats) -> None:
        """Add places: [n] each, no place twice."""
        ...

    def change(self, places: Ints, keys: Floats) -> None:
        """Give held places new keys: [n] each, no place twice."""
        ...

    def remove(self, places: Ints) -> None:
        """Remove places: [n]."""
        ...

    def state(self) -> dict[str, Json]:
        """What `load` cannot derive from the keys."""
        ...

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue, with these places in rising order and their keys: [n] each."""
        ...


class Shelf(Held, Protocol):
    """The places of one source."""

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """At most `want` distinct places and their weights: [n] each.

        A weight is n of the draw, divided by all held and by the chance of the place to be in the draw: the weighted
        mean over the draw estimates the mean over all that are held without bias.
        """
        ...

    def __len__(self) -> int:
        """Places held."""
        ...


class Keeper(Held, Protocol):
    """All places, in the order in which they leave a full buffer."""

    def surplus(self, capacity: int, random: Generator) -> Ints:
        """Places beyond the capacity; the caller removes them: [n]."""
        ...


class Law(Protocol):
    """Masses of the places below `size`, `count` of them above 0; `total` is their sum."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def total(self) -> float: ...

    def find(self, points: Floats) -> Ints:
        """Place under each point of [0, total): [n]."""
        ...

    def masses(self, places: Ints) -> Floats:
        """Masses of some places: [n]."""
        ...

    def everything(self) -> Ints:
        """All places with a mass above 0: [count]."""
        ...


def draw(law: Law, want: int, random: Generator) -> tuple[Ints, Floats]:
    """The first `want` places to ring, in rising order, and the probability of each to be among them: [n] each."""
    want = min(want, law.count)
    if want == 0:
        return np.zeros(0, np.int64), np.zeros(0)
    places, times = _first(law, want + 1, random)
    # In the order of places, which is that of memory: fetching a million groups' 4,096 takes half the time.
    chosen = np.sort(places[:want])
    if len(places) <= want:
        return chosen, np.ones(len(chosen))
    return chosen, -np.expm1(-law.masses(chosen) * times[want])


def _first(law: Law, want: int, random: Generator) -> tuple[Ints, Floats]:
    """Places in the order of their rings, and the times: at least `want` of them, or all."""
    places, times, now = np.zeros(0, np.int64), np.zeros(0), 0.0
    # Rings of all clocks together come at the rate of the total; a clock that rang before is passed over. Where
    # many would be, because few places are left or few hold the mass, ringing each clock once is cheaper.
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


def _every_clock(law: Law, want: int, random: Generator, rang: tuple[Ints, Floats], now: float) -> tuple[Ints, Floats]:
    """The same for any masses, in O(count): clocks that did not ring until `now` ring later, as if they began now."""
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

    Keys of recency and staleness grow without end, so the base moves up behind them, at a cost of O(n) each time.
    Masses stay within 2 ** -500 and 2 ** 500: what lies below counts as much as 2 ** -500.
    """

    def __init__(self, alpha: float, keys_at: Callable[[Ints], Floats]) -> None:
        """Take `keys_at`, which returns the keys of places that were put."""
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
        """The base, and the size of the tree: sums are rounded by its shape."""
        return {"base": self._base, "size": self._tree.size}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._base, self._tree = cast(float, state["base"]), SumTree(1)
        self._reach(cast(int, state["size"]))
        self.count = len(places)
        self._tree.put(places, self._mass(keys))

    def __len__(self) -> int:
        return self.count

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


class RankShelf(RankIndex):
    """Draws by (1 / rank) ** alpha, insensitive to the size of priorities. The places of its law are ranks."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha
        self._ends: Floats = np.ones(1)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """Distinct places by rank, and their weights."""
        while len(self._ends) < len(self):
            self._ends = self.masses(np.arange(2 * len(self._ends))).cumsum()
        ranks, chances = draw(self, want, random)
        return self.at(ranks), _weights(chances, self.count)

    @property
    def count(self) -> int:
        """Number of ranks."""
        return len(self)

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


class Reservoir:
    """Keeps a uniform random choice of all that ever came: algorithm R (Vitter 1985, doi:10.1145/3147.3165).

    The i-th arrival takes a random one of the first i numbers. If it is below the capacity, it is a seat, and the place
    there leaves; else the arrival does. A place that left for another reason gives its seat to the next arrival.
    """

    def __init__(self) -> None:
        self._seats: list[int] = []
        self._seat_of: dict[int, int] = {}
        self._waiting = Queue()
        self._arrived = 0

    def put(self, places: Ints, keys: Floats) -> None:
        """Add places; they wait for the next `surplus`."""
        self._waiting.put(places)

    def change(self, places: Ints, keys: Floats) -> None:
        """Do nothing: keys do not matter."""

    def remove(self, places: Ints) -> None:
        """Remove places."""
        for place in places.tolist():
            if (seat := self._seat_of.pop(place, None)) is not None:
                last = self._seats.pop()
                if last != place:
                    self._seats[seat] = last
                    self._seat_of[last] = seat
            elif place in self._waiting:
                self._waiting.remove(np.array([place]))
                self._arrived += 1

    def surplus(self, capacity: int, random: Generator) -> Ints:
        """Arrivals without a seat, and places that lose theirs."""
        waiting, self._waiting, gone = list(self._waiting), Queue(), list[int]()
        numbers = random.integers(np.arange(len(waiting)) + self._arrived + 1).tolist()
        self._arrived += len(waiting)
        for place, number in zip(waiting, numbers, strict=True):
            if len(self._seats) < capacity:
                self._seat_of[place] = len(self._seats)
                self._seats.append(place)
            elif number < capacity:
                gone.append(self._seats[number])
                del self._seat_of[gone[-1]]
                self._seats[number], self._seat_of[place] = place, number
            else:
                gone.append(place)
        return np.array(gone, np.int64)

    def state(self) -> dict[str, Json]:
        """Seats, arrivals that wait, and the number of arrivals."""
        return {"seats": list(self._seats), "waiting": list(self._waiting), "arrived": self._arrived}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._seats = list(cast(list[int], state["seats"]))
        self._seat_of = {place: seat for seat, place in enumerate(self._seats)}
        self._waiting.load({"order": state["waiting"]}, places, keys)
        self._arrived = cast(int, state["arrived"])
