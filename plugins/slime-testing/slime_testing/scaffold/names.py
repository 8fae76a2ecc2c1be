"""Names: everything that a plugin package is called, from its kind and one word.

Example:

    Names.parse("group-reward", "best-of").dist          # "slime-group-reward-best-of"
"""

import builtins
import keyword
import re
from dataclasses import dataclass

from slime_core.errors import ConfigError, UnknownName, did_you_mean
from slime_testing.scaffold.kinds import KINDS, Kind

LONGEST = 40
"""Characters of a name: lines that hold names made from it stay under 120."""
_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Names:
    """A kind and a checked name; `slime-reward-x` and `reward-x` mean `x`."""

    kind: Kind
    """What the plugin is."""
    name: str
    """What a run file selects it by: lower-case letters, digits and single dashes."""

    @classmethod
    def parse(cls, kind: str, name: str) -> "Names":
        """Check what the user typed.

        Raises:
            UnknownName: there is no such kind.
            ConfigError: the name cannot be a distribution's and a module's.
        """
        word = kind.replace("_", "-")
        if word not in KINDS:
            raise UnknownName(f"no role {kind!r}.{did_you_mean(kind, KINDS)} Roles: {', '.join(KINDS)}.")
        name = name.removeprefix(f"slime-{word}-").removeprefix(f"{word}-") or name
        if not _PATTERN.fullmatch(name) or len(name) > LONGEST:
            raise ConfigError(
                f"name {name!r}: expected lower-case letters, digits and single dashes, at most {LONGEST} "
                f"characters, such as {_repaired(name)!r}"
            )
        return cls(KINDS[word], name)

    @property
    def entry_point(self) -> str:
        """Name of its entry point."""
        return f"{self.kind.word}-{self.name}"

    @property
    def dist(self) -> str:
        """Name of its distribution, and of the folder."""
        return f"slime-{self.entry_point}"

    @property
    def class_name(self) -> str:
        """Name of its class, as Python writes such names: `best-of` is `BestOf`."""
        words, role = ("".join(each.capitalize() for each in text.split("-")) for text in (self.name, self.kind.word))
        if not words[0].isalpha():
            return role + words
        known = keyword.iskeyword(words) or hasattr(builtins, words)
        return words + role if known else words

    @property
    def module(self) -> str:
        """Name of its Python package."""
        return self.dist.replace("-", "_")


def _repaired(name: str) -> str:
    """The nearest good name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    parts = re.findall(r"[a-z0-9]+", spaced.lower())
    return "-".join(parts)[:LONGEST].rstrip("-") or "my-own"
