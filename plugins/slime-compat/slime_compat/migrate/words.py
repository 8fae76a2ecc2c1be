"""Words of a script: texts that are known without running it, and those that are not, with the line and the reason."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A text that only running the script would tell."""

    line: int
    """The line that makes it so, from 1."""
    why: str
    """What makes it so: "only running `nvidia-smi -L` would tell"."""
    file: str = ""
    """The file of that line, where it is not the script itself."""
    name: str = ""
    """The variable that it came by."""

    @property
    def told(self) -> str:
        """Where, why, and what gives it."""
        given = f"; --define {self.name}=VALUE gives it" if self.name else ""
        return f"{f'{self.file} ' if self.file else ''}line {self.line}: {self.why}{given}"


Text = str | Unknown


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, or of an array."""

    text: Text
    """What it is."""
    line: int
    """Its line."""
    file: str = ""
    """The file of that line, where it is not the script itself."""
    several: bool = False
    """Whether it stands for any number of words, none of which is known."""


Value = Text | tuple[Word, ...]
"""What a variable holds; a tuple is an array."""


def joined(texts: Iterable[Text]) -> Text:
    """Texts one after another; the first that is unknown makes all of it so."""
    known: list[str] = []
    for each in texts:
        if isinstance(each, Unknown):
            return each
        known.append(each)
    return "".join(known)
