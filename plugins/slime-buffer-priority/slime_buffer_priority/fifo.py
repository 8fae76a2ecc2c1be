"""FifoShelf: places in the order in which they came; keys have no say, and all weights are 1.

Example:

    shelf = FifoShelf()
    shelf.put(np.array([3, 1]), np.zeros(2))
    shelf.draw(1, random)                    # place 3, which goes to the end
"""

from collections.abc import Mapping
from itertools import islice
from typing import cast

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints
from slime_buffer_priority.queue import Queue
from slime_core.sample import Json


class FifoShelf:
    """Implements `Shelf`."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._queue = Queue()

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in."""
        self._queue.append(places)

    def change(self, places: Ints, keys: Floats) -> None:
        """Nothing changes."""

    def remove(self, places: Ints) -> None:
        """Forget places."""
        self._queue.remove(places)

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """The places that wait longest; they go to the end."""
        places = np.array(list(islice(self._queue, want)), np.int64)
        self._queue.remove(places)
        self._queue.append(places)
        return places, np.ones(len(places))

    def state(self) -> dict[str, Json]:
        """The places in order."""
        return {"order": list(self._queue)}

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue."""
        self._queue = Queue()
        self._queue.append(np.array(cast(list[int], state["order"]), np.int64))

    def __len__(self) -> int:
        """Places held."""
        return len(self._queue)
