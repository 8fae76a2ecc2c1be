"""Taken names: keys and flags by the name that another framework has for exactly the same, written as ours.

Example:

    TakenNames(catalog).place({"rm_type": "math"})
    # Taken({"reward": {"use": "math"}}, ["rm_type is slime's: reward.use = 'math'"])
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slime_core.catalog import Catalog
from slime_core.config.flat_keys import Path, put
from slime_core.roles import ForeignName
from slime_core.sample import Json


class Taken(NamedTuple):
    """A run file's values, with names of other frameworks replaced by ours."""

    values: dict[str, Json]
    """What is not from elsewhere stands as it was."""
    notes: Sequence[str]
    """A sentence for each name that was taken."""


class TakenNames:
    """The names from elsewhere that a catalog's plugins say the exact meaning of."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @functools.cached_property
    def names(self) -> Mapping[str, ForeignName]:
        """By name; of one that means something to two frameworks, the first plugin's."""
        found: dict[str, ForeignName] = {}
        for each in self._catalog.foreign_names:
            if each.means is not None:
                found.setdefault(each.name, each)
        return found

    def place(self, values: Mapping[str, Json]) -> Taken:
        """Write what is taken as ours; what is not exactly the same stays, and is told as an unknown key.

        Raises:
            ConfigError: it contradicts what stands at its place.
        """
        known = {key: name for key in values if (name := self.names.get(key)) is not None}
        placed = {key: value for key, value in values.items() if key not in known}
        notes: list[str] = []
        for key, name in known.items():
            assert name.means is not None, "it is one that is taken"
            meant = name.means(values[key])
            if meant is None:
                placed[key] = values[key]
                continue
            written = [*_leaves(meant)]
            for path, value in written:
                put(placed, f"{key} = {values[key]!r}", path, value)
            shown = " and ".join(f"{'.'.join(path)} = {value!r}" for path, value in written) or "so anyway"
            whose = f"{name.framework}'s" if name.framework else "from elsewhere"
            notes.append(f"{key} is {whose}: {shown}")
        return Taken(placed, notes)


def _leaves(table: Mapping[str, Json], path: Path = ()) -> Iterator[tuple[Path, Json]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
