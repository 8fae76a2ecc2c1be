"""Flag: one flag of slime's, and what it is here, read from the tables beside this module.

Example:

    flags()["use_tis"].set          # {"correction": {"use": "tis"}}
    flags()["balance_data"].always  # "samples are always balanced over ranks; ..."
"""

import enum
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import cast

from slime_core.sample import Json

NEWEST = "0.3.1"
"""The slime whose flags these are."""


class Takes(enum.Enum):
    """What a flag takes."""

    NOTHING = "nothing"
    """It is a switch."""
    EITHER = "either"
    """It is a switch that `--no-` turns off."""
    INTEGER = "integer"
    """A whole number."""
    NUMBER = "number"
    """A number."""
    TEXT = "text"
    """A text."""
    JSON = "json"
    """JSON."""
    INTEGERS = "integers"
    """Several whole numbers."""
    TEXTS = "texts"
    """Several texts."""
    AGAIN = "again"
    """A text, each time that it is given."""


class Outcome(enum.Enum):
    """What becomes of a flag."""

    SAME = "same"
    """It has the same name here."""
    MAPPED = "mapped"
    """It is taken for what is written otherwise here."""
    TOLD = "told"
    """It is written otherwise, and that depends on more than the flag, or is nearly the same."""
    ALWAYS = "nothing to write"
    """What it asks for is always so, or follows from something else."""
    REFUSED = "refused"
    """There is no such thing; it is said what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag."""

    name: str
    """Without dashes in front, and with underscores."""
    group: str
    """The part of slime's arguments, or of Megatron's, that it is of."""
    takes: Takes = Takes.TEXT
    """What it takes."""
    same: bool = False
    """Whether it is a key of the same name."""
    key: str = ""
    """Where its value goes: a key, or `role.choice.setting`."""
    values: Mapping[str, Json] = field(default_factory=dict)
    """What some of its values are here; a table is merged into the run file instead."""
    set: Mapping[str, Json] = field(default_factory=dict)
    """What it sets besides, or as a switch."""
    weak: bool = False
    """Whether what it sets gives way to what another flag says."""
    special: str = ""
    """The function of `slime_compat.migrate.specials` that knows what it is, where others decide, too."""
    nearly: bool = False
    """Whether what it is here is not exactly the same."""
    asks: str = ""
    """`role.choice` whose setting of this very name it is, if that has one."""
    always: str = ""
    """Why there is nothing to write."""
    refused: str = ""
    """Why it, or a value that is not listed, is refused, and what to do instead."""
    minor: bool = False
    """Whether what is trained is the same without it."""
    harmless: tuple[str, ...] = ()
    """Values that ask for what is so anyway."""
    default: Json = None
    """slime's default, where the one here is another."""
    config: str = ""
    """What a model's config.json calls it."""
    told: str = ""
    """What to say about it, besides."""
    example: str = ""
    """A value, for the page and the tests."""
    until: str = ""
    """The last release of slime that had it; empty: it is there."""

    @property
    def typed(self) -> str:
        """As it is typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def outcome(self) -> Outcome:
        """What becomes of it."""
        if self.same:
            return Outcome.SAME
        if self.special or (self.nearly and self.key):
            return Outcome.TOLD
        if self.key or self.set:
            return Outcome.MAPPED
        return Outcome.ALWAYS if self.always else Outcome.REFUSED


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Every flag by name: slime's own, then those of Megatron's that its scripts pass on."""
    found: dict[str, Flag] = {}
    for table in ("slime.toml", "megatron.toml"):
        groups = tomllib.loads(files(__package__).joinpath(table).read_text("utf-8"))
        for group, rows in cast("dict[str, dict[str, dict[str, Json]]]", groups).items():
            for name, row in rows.items():
                if name in found:
                    raise ValueError(f"{table}: {name} is in {found[name].group}, too")
                found[name] = _flag(name, group, row)
    return found


@functools.cache
def newer_names() -> Mapping[str, str]:
    """What later releases of SGLang call arguments that they have under another name."""
    return cast("dict[str, str]", tomllib.loads(files(__package__).joinpath("sglang.toml").read_text("utf-8")))


def _flag(name: str, group: str, row: dict[str, Json]) -> Flag:
    given: dict[str, object] = dict(row)
    given["takes"] = Takes(given.get("takes", "text"))
    given["harmless"] = tuple(cast("list[str]", given.get("harmless", [])))
    return Flag(name=name, group=group, **given)  # type: ignore[arg-type]  # fields of the table's own columns
