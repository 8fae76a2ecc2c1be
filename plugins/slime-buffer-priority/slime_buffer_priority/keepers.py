"""Keepers: which groups leave when there are more than the capacity: the oldest, the lowest, or some at random.

Example:

    keeper = make_keeper(Keep.NEWEST)
    keeper.put(places, keys)
    keeper.surplus(capacity=2, random=random)        # places to give up, once a step
"""

from collections.abc import Mapping
from itertools import islice
from typing import Protocol, cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints
from slime_buffer_priority.queue import Queue
from slime_buffer_priority.ranks import RankIndex
from slime_buffer_priority.settings import Keep
from slime_core.sample import Json


class Keeper(Protocol):
    """What is held, as far as giving up goes."""

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in: [n] each."""
        ...

    def change(self, places: Ints, keys: Floats) -> None:
        """They have new keys: [n] each."""
        ...

    def remove(self, places: Ints) -> None:
        """They left: [n]."""
        ...

    def surplus(self, capacity: int, random: Generator) -> Ints:
        """Places to give up; the caller removes them: [n]."""
        ...

    def state(self) -> dict[str, Json]:
        """What `load` cannot tell from the keys."""
        ...

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue, with these places: [n] each, in the order of places."""
        ...


def make_keeper(keep: Keep) -> Keeper:
    """An empty keeper."""
    kinds: dict[Keep, type[Newest] | type[Highest] | type[Reservoir]] = {
        Keep.NEWEST: Newest,
        Keep.HIGHEST: Highest,
        Keep.RESERVOIR: Reservoir,
    }
    return kinds[keep]()


class Newest:
    """Gives up what came first."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._queue = Queue()

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in."""
        self._queue.append(places)

    def change(self, places: Ints, keys: Floats) -> None:
        """No matter."""

    def remove(self, places: Ints) -> None:
        """They left."""
        self._queue.remove(places)

    def surplus(self, capacity: int, random: Generator) -> Ints:
        """The oldest."""
        count = max(0, len(self._queue) - capacity)
        return np.fromiter(islice(self._queue, count), np.int64, min(count, len(self._queue)))

    def state(self) -> dict[str, Json]:
        """The places in order."""
        return {"order": list(self._queue)}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._queue = Queue()
        self._queue.append(np.array(cast(list[int], state["order"]), np.int64))


class Highest:
    """Gives up what has the lowest priority."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._index = RankIndex()

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in."""
        self._index.put(places, keys)

    def change(self, places: Ints, keys: Floats) -> None:
        """Their ranks change."""
        self._index.put(places, keys)

    def remove(self, places: Ints) -> None:
        """They left."""
        self._index.remove(places)

    def surplus(self, capacity: int, random: Generator) -> Ints:
        """The last ranks."""
        return self._index.at(np.arange(min(capacity, len(self._index)), len(self._index)))

    def state(self) -> dict[str, Json]:
        """The places by rank."""
        return {"base": self._index.base, "order": list(self._index)}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        order = np.array(cast(list[int], state["order"]), np.int64)
        self._index.load(cast(float, state["base"]), order, keys[np.searchsorted(places, order)])


class Reservoir:
    """Keeps a uniform random choice of all that ever came: algorithm R (Vitter 1985, doi:10.1145/3147.3165).

    The i-th arrival takes a random one of the first i numbers; a number below the capacity is a seat, and whoever sits
    there leaves; else the arrival itself does. A group that left for another reason gives its seat to the next arrival.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._seats: list[int] = []
        self._seat_of: dict[int, int] = {}
        self._waiting = Queue()
        self._arrived = 0

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in; they wait for the next `surplus`."""
        self._waiting.append(places)

    def change(self, places: Ints, keys: Floats) -> None:
        """No matter."""

    def remove(self, places: Ints) -> None:
        """They left."""
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
        """Who finds no seat, and who loses one."""
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
        """Who sits where, who waits, and how many there were."""
        return {"seats": list(self._seats), "waiting": list(self._waiting), "arrived": self._arrived}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._seats = list(cast(list[int], state["seats"]))
        self._seat_of = {place: seat for seat, place in enumerate(self._seats)}
        self._waiting = Queue()
        self._waiting.append(np.array(cast(list[int], state["waiting"]), np.int64))
        self._arrived = cast(int, state["arrived"])
