"""Migration: what became of each flag of a script, and the run file that came of it."""

import enum
from dataclasses import dataclass, field
from pathlib import Path

from slime_core.config import Installed
from slime_core.sample import Json

Place = tuple[str, ...]
"""A place in a run file."""


class Fate(enum.Enum):
    """What became of a flag."""

    CARRIED = "carried"
    """It is a key of the same name."""
    MAPPED = "mapped"
    """It is written otherwise."""
    NEEDLESS = "nothing to write"
    """What it asks for is so anyway."""
    MINOR = "left out, and trains the same"
    """There is no such thing, and what is trained does not depend on it."""
    LEFT_OUT = "left out, and matters"
    """There is no such thing, or it cannot be told."""


@dataclass(frozen=True, slots=True)
class Row:
    """One flag."""

    fate: Fate
    """What became of it."""
    flag: str
    """As it was given."""
    here: str
    """What it is here, or why it was left out."""
    line: int
    """Its line; 0: it is in none."""
    file: str = ""
    """The file of that line, where it is not the script itself."""
    path: Place = ()
    """Where its value is."""


@dataclass(slots=True)
class Migration:
    """A script as a run file."""

    script: Path = Path()
    """The script."""
    installed: Installed = field(default_factory=Installed)
    """What is asked about keys."""
    values: dict[str, Json] = field(default_factory=dict)
    """The run file."""
    rows: list[Row] = field(default_factory=list)
    """What became of its flags, in their order."""
    weak: set[Place] = field(default_factory=set)
    """Places whose value gives way to what another flag says."""
    problems: list[str] = field(default_factory=list)
    """What `slime plan` would refuse still."""

    def of(self, fate: Fate) -> list[Row]:
        """The rows of a fate."""
        return [row for row in self.rows if row.fate is fate]

    @property
    def is_whole(self) -> bool:
        """Whether nothing that matters was left out."""
        return not self.of(Fate.LEFT_OUT) and not self.problems

    def note(self, fate: Fate, flag: str, here: str, line: int = 0, file: str = "") -> None:
        """Remember what became of a flag that is written nowhere."""
        self.rows.append(Row(fate, flag, here, line, file))

    def get(self, *path: str) -> Json:
        """What stands at a place; None where nothing does."""
        value: Json = self.values
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def put(self, path: Place, value: Json) -> None:
        """Write a value at a place."""
        table = self.values
        for part in path[:-1]:
            inner = table.get(part)
            table[part] = inner = dict(inner) if isinstance(inner, dict) else {}
            table = inner
        table[path[-1]] = value

    def drop(self, path: Place) -> None:
        """Take away what stands at a place, and tables that it leaves empty."""
        table = self.get(*path[:-1]) if path[:-1] else self.values
        if isinstance(table, dict):
            table.pop(path[-1], None)
            if not table and path[:-1]:
                self.drop(path[:-1])


def leaves(table: dict[str, Json], path: Place = ()) -> list[tuple[Place, Json]]:
    """Each setting of a table with its place."""
    found: list[tuple[Place, Json]] = []
    for key, value in table.items():
        found += leaves(value, (*path, key)) if isinstance(value, dict) and value else [((*path, key), value)]
    return found
