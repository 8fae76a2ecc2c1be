"""Race: a draw of distinct places by mass, and the probability with which each one would have been in it.

Every place has a clock that rings at a random time, exponential with its mass as the rate; the draw is the first
`want` to ring. That is the law of drawing one after another without putting back (each next one in proportion to the
masses still there), and given the time t at which the next one rings, a place of mass m is among them with probability
1 - exp(-m t), which makes weights 1 / that unbiased (Cohen and Kaplan 2007, bottom-k sketches; Duffield, Lund and
Thorup 2007, priority sampling; doi:10.1145/1281100.1281133, doi:10.1145/1314690.1314696).

    drawn = draw(law, want=256, random=np.random.default_rng(0))
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints

_ROUNDS = 3


class Law(Protocol):
    """Masses of places; their sum over all places is `total`."""

    @property
    def count(self) -> int:
        """Number of places with a mass above 0."""
        ...

    @property
    def size(self) -> int:
        """Places are below it."""
        ...

    @property
    def total(self) -> float:
        """Sum of the masses."""
        ...

    def find(self, points: Floats) -> Ints:
        """Place under each point of [0, total): [n]."""
        ...

    def masses(self, places: Ints) -> Floats:
        """Masses of some places: [n]."""
        ...

    def everything(self) -> Ints:
        """All places with a mass above 0: [count]."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """What came first."""

    places: Ints
    """Distinct places, in their order: [n]."""
    chances: Floats
    """Probability of each to be in such a draw, given the time at which it ended: [n]."""


def draw(law: Law, want: int, random: Generator) -> Drawn:
    """The first `want` places to ring, or all there are."""
    want = min(want, law.count)
    if want == 0:
        return Drawn(np.zeros(0, np.int64), np.zeros(0))
    places, times = _first(law, want + 1, random)
    # In the order of places, which is that of memory: fetching a million groups' 4,096 takes half the time.
    chosen = np.sort(places[:want])
    if len(places) <= want:
        return Drawn(chosen, np.ones(len(chosen)))
    return Drawn(chosen, -np.expm1(-law.masses(chosen) * times[want]))


def _first(law: Law, want: int, random: Generator) -> tuple[Ints, Floats]:
    """Places in order, and when they rang: at least `want` of them, or all."""
    places, times, now = np.zeros(0, np.int64), np.zeros(0), 0.0
    # Rings of all clocks together come at the rate of the total; a clock that rang before is passed over. Where
    # many would be, because few places are left or few hold the mass, ringing each clock once is the cheaper way.
    for _ in range(_ROUNDS if 4 * want <= law.count else 0):
        rings = want - len(places) + 8 + want // 16
        gaps = random.standard_exponential(rings) / law.total
        later = now + gaps.cumsum()
        now = float(later[-1])
        found = random.permutation(law.find(np.sort(random.random(rings)) * law.total))
        places, times = np.concatenate((places, found)), np.concatenate((times, later))
        if (firsts := _firsts(places)) is not None:
            places, times = places[firsts], times[firsts]
        real = law.masses(places) > 0
        if not real.all():
            places, times = places[real], times[real]
        if len(places) >= want:
            return places, times
    return _every_clock(law, want, random, (places, times), now)


def _every_clock(law: Law, want: int, random: Generator, rang: tuple[Ints, Floats], now: float) -> tuple[Ints, Floats]:
    """The same for any masses, in O(count): those that did not ring until now ring later, as if they began now."""
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


def _firsts(places: Ints) -> Ints | None:
    """Positions at which a place comes for the first time: [distinct]; None for all, as is usual."""
    in_order = np.sort(places)
    if not (in_order[1:] == in_order[:-1]).any():
        return None
    return np.sort(np.unique(places, return_index=True)[1])
