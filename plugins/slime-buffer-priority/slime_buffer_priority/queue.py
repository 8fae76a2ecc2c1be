"""Queue: places in order of arrival, any of which may leave; every step O(1).

Example:

    queue = Queue()
    queue.append(np.array([4, 2]))
    queue.first()                       # 4
"""

from collections import OrderedDict
from collections.abc import Iterator

from slime_buffer_priority.arrays import Ints


class Queue:
    """An ordered set of places; unlike a dict, it does not pass by all that left each time it looks for its first."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._places: OrderedDict[int, None] = OrderedDict()

    def append(self, places: Ints) -> None:
        """Add places at the end; those that are there stay where they are: [n]."""
        self._places.update(dict.fromkeys(places.tolist()))

    def remove(self, places: Ints) -> None:
        """Take places out, if they are there: [n]."""
        for place in places.tolist():
            self._places.pop(place, None)

    def first(self) -> int:
        """The one that is there longest."""
        return next(iter(self._places))

    def __iter__(self) -> Iterator[int]:
        """All places in order."""
        return iter(self._places)

    def __contains__(self, place: int) -> bool:
        """Whether it is there."""
        return place in self._places

    def __len__(self) -> int:
        """Places there are."""
        return len(self._places)
