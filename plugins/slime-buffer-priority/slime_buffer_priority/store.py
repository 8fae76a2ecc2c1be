"""Store: the held groups by place, with the numbers that draws and evictions need; freed places are used again.

Example:

    place = store.add(group, key=0.0, fixed=0.0, version=3, shelf=0)
    store.remove(place)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from slime_buffer_priority.arrays import Floats, Groups, Ints, grown
from slime_core import Group, GroupId
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Entry:
    """A group that comes in."""

    group: Group
    """The group."""
    fixed: float
    """The part of its key that will not change."""
    version: int
    """Weight version of its oldest token."""
    shelf: int
    """Number of the shelf that it stands on."""


class Store:
    """Held groups."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.groups: Groups = np.zeros(0, np.object_)
        """The group at each place."""
        self.places: dict[GroupId, int] = {}
        """The place of each group."""
        self.keys: Floats = np.zeros(0)
        """Base-2 logarithm of each place's priority."""
        self.fixed: Floats = np.zeros(0)
        """The part of it that does not change."""
        self.uses: Ints = np.zeros(0, np.int64)
        """How often each was handed out."""
        self.shelves: Ints = np.zeros(0, np.int64)
        """Number of the shelf of each place."""
        self._versions: dict[int, set[int]] = {}
        self._version_at: list[int] = []
        self._free: list[int] = []

    def add(self, entries: Iterable[Entry], advantage_key: float) -> Ints:
        """Take groups in: their places, [n]."""
        taken = [(self._place(), entry) for entry in entries]
        for place, entry in taken:
            self._stand(place, entry)
        places = np.array([place for place, _ in taken], np.int64)
        self.fixed[places] = [entry.fixed for _, entry in taken]
        self.keys[places] = self.fixed[places] + advantage_key
        self.uses[places] = 0
        self.shelves[places] = [entry.shelf for _, entry in taken]
        return places

    def remove(self, places: Ints) -> list[Group]:
        """Let groups go."""
        gone = self.at(places)
        self.groups[places] = None
        for place, group in zip(places.tolist(), gone, strict=True):
            del self.places[group.id]
            version = self._version_at[place]
            self._versions[version].discard(place)
            if not self._versions[version]:
                del self._versions[version]
            self._free.append(place)
        return gone

    def at(self, places: Ints) -> list[Group]:
        """The groups at places."""
        return cast(list[Group], self.groups.take(places).tolist())

    def older_than(self, version: int) -> Ints:
        """Places whose oldest token is from before a weight version, in order."""
        old = [each for each in self._versions if each < version]
        return np.array(sorted(place for each in old for place in self._versions[each]), np.int64)

    def held(self) -> Ints:
        """All places that hold a group, in order."""
        return np.array(sorted(self.places.values()), np.int64)

    def __len__(self) -> int:
        """Groups held."""
        return len(self.places)

    def state(self) -> dict[str, Json]:
        """The groups in the order of their places, their numbers, and the places that are free."""
        held = self.held()
        numbers: dict[str, list[Json]] = {
            "places": held.tolist(),
            "keys": self.keys[held].tolist(),
            "fixed": self.fixed[held].tolist(),
            "uses": self.uses[held].tolist(),
            "shelves": self.shelves[held].tolist(),
            "versions": [self._version_at[place] for place in held.tolist()],
        }
        return {**numbers, "groups": [group.to_dict() for group in self.at(held)], "free": [*self._free]}

    def load(self, state: Mapping[str, Json]) -> None:
        """Continue with saved groups."""
        self.__init__()  # type: ignore[misc]  # this very class, emptied
        places = cast(list[int], state["places"])
        self._free = [*cast(list[int], state["free"])]
        self._grow(len(places) + len(self._free))
        groups = cast(list[Mapping[str, Json]], state["groups"])
        columns = (cast(list[int], state[name]) for name in ("versions", "shelves"))
        for place, group, version, shelf in zip(places, groups, *columns, strict=True):
            self._stand(place, Entry(Group.from_dict(group), 0.0, version, shelf))
        for name in ("keys", "fixed", "uses", "shelves"):
            getattr(self, name)[places] = state[name]

    def _stand(self, place: int, entry: Entry) -> None:
        self.groups[place] = entry.group
        self.places[entry.group.id] = place
        self._version_at[place] = entry.version
        self._versions.setdefault(entry.version, set()).add(place)

    def _place(self) -> int:
        if self._free:
            return self._free.pop()
        self._grow(len(self._version_at) + 1)
        return len(self._version_at) - 1

    def _grow(self, size: int) -> None:
        self._version_at += [0] * (size - len(self._version_at))
        if size > len(self.keys):
            room = 1 << (size - 1).bit_length()
            self.groups = cast(Groups, grown(self.groups, room))
            self.keys, self.fixed = cast(Floats, grown(self.keys, room)), cast(Floats, grown(self.fixed, room))
            self.uses, self.shelves = cast(Ints, grown(self.uses, room)), cast(Ints, grown(self.shelves, room))
