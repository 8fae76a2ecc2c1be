"""Flags of a training command with their values and lines, and how each was translated.

Example:

    list(given_flags(training))     # [GivenFlag("actor_num_nodes", ("1",), 153), GivenFlag("colocate", (), 155), ...]
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slime_core.config import Installed
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Unknown:
    """A text that is unknown unless the script runs."""

    line: int
    """The line that makes it unknown, from 1."""
    why: str
    """The reason: "`nvidia-smi -L` is not run"."""
    file: str = ""
    """The file of that line; empty for the script itself."""
    name: str = ""
    """The variable that the text came from."""

    @property
    def message(self) -> str:
        """The place, the reason, and how to supply the text."""
        hint = f"; set it by --define {self.name}=VALUE" if self.name else ""
        return f"{f'{self.file} ' if self.file else ''}line {self.line}: {self.why}{hint}"


Text = str | Unknown


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, or of an array."""

    text: Text
    line: int
    file: str = ""
    """The file of that line; empty for the script itself."""
    several: bool = False
    """Whether it represents any number of unknown words."""


Value = Text | tuple[Word, ...]
"""A variable's value; a tuple is an array."""


def concatenate(texts: Iterable[Text]) -> Text:
    """The concatenated texts, or the first unknown text."""
    known: list[str] = []
    for each in texts:
        if isinstance(each, Unknown):
            return each
        known.append(each)
    return "".join(known)


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """One flag."""

    name: str
    """Name without leading dashes, with underscores; empty for words before the first flag."""
    values: tuple[Text, ...]
    line: int
    file: str = ""
    """The file of that line; empty for the script itself."""

    @property
    def typed(self) -> str:
        """The flag as typed, with its known values."""
        texts = ["…" if isinstance(each, Unknown) else each for each in self.values]
        name = f"--{self.name.replace('_', '-')}" if self.name else ""
        return " ".join(filter(None, (name, *texts)))

    @property
    def unknown(self) -> Unknown | None:
        """Its first unknown value, if any."""
        return next((each for each in self.values if isinstance(each, Unknown)), None)


def given_flags(words: tuple[Word, ...]) -> Iterator[GivenFlag]:
    """The flags among words, in order."""
    name, values, at = "", list[Text](), words[0] if words else Word("", 0)
    for word in words:
        if isinstance(word.text, str) and word.text.startswith("--") and len(word.text) > 2:
            if name or values:
                yield GivenFlag(name, tuple(values), at.line, at.file)
            before, equals, after = word.text.removeprefix("--").partition("=")
            name, values, at = before.replace("-", "_"), [after] if equals else [], word
        elif word.several:
            yield GivenFlag("", (word.text,), word.line, word.file)
        else:
            values.append(word.text)
    if name or values:
        yield GivenFlag(name, tuple(values), at.line, at.file)


KeyPath = tuple[str, ...]
"""Path of a key in a run file."""


class Result(enum.Enum):
    """How a flag was translated."""

    KEPT = "kept"
    """Written to a key of the same name."""
    MAPPED = "mapped"
    """Written to another key, or as another value."""
    NEEDLESS = "nothing to write"
    """It has no effect here."""
    MINOR = "left out, training is the same"
    """It has no equivalent, and training does not depend on it."""
    LEFT_OUT = "left out, training may differ"
    """It has no equivalent, or its value is unknown."""


@dataclass(frozen=True, slots=True)
class Row:
    """One flag."""

    result: Result
    flag: str
    here: str
    """Its translation, or the reason why it was left out."""
    line: int
    """Its line; 0 if it is not in the script."""
    file: str = ""
    """The file of that line; empty for the script itself."""
    path: KeyPath = ()


@dataclass(slots=True)
class Migration:
    """The run file of a script, and the outcome of its flags."""

    script: Path = Path()
    installed: Installed = field(default_factory=Installed)
    """Installed plugins, which define the valid keys."""
    values: dict[str, Json] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    """Outcome of each flag, in the command's order."""
    weak: set[KeyPath] = field(default_factory=set)
    """Places whose value other flags override."""
    problems: list[str] = field(default_factory=list)
    """Remaining errors of `slime plan`."""

    def of(self, result: Result) -> list[Row]:
        """The rows with this outcome."""
        return [row for row in self.rows if row.result is result]

    @property
    def is_whole(self) -> bool:
        """Whether nothing that matters was left out."""
        return not self.of(Result.LEFT_OUT) and not self.problems

    def note(self, result: Result, flag: str, here: str, line: int = 0, file: str = "") -> None:
        """Record the outcome of a flag that writes no key."""
        self.rows.append(Row(result, flag, here, line, file))

    def note_flag(self, result: Result, given: GivenFlag, here: str) -> None:
        """Record the outcome of a flag of the command that writes no key."""
        self.note(result, given.typed, here, given.line, given.file)

    def get(self, *path: str) -> Json:
        """The value of a key; None without one."""
        value: Json = self.values
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def put(self, path: KeyPath, value: Json) -> None:
        """Set the value of a key."""
        table = self.values
        for part in path[:-1]:
            inner = table.get(part)
            table[part] = inner = dict(inner) if isinstance(inner, dict) else {}
            table = inner
        table[path[-1]] = value

    def drop(self, path: KeyPath) -> None:
        """Delete a key, and tables that become empty."""
        table = self.get(*path[:-1]) if path[:-1] else self.values
        if isinstance(table, dict):
            table.pop(path[-1], None)
            if not table and path[:-1]:
                self.drop(path[:-1])


def leaves(table: dict[str, Json], path: KeyPath = ()) -> list[tuple[KeyPath, Json]]:
    """Each setting of a table with its path."""
    found: list[tuple[KeyPath, Json]] = []
    for key, value in table.items():
        found += leaves(value, (*path, key)) if isinstance(value, dict) and value else [((*path, key), value)]
    return found
