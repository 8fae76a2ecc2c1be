"""Flag: one slime flag with its equivalent here, read from the tables in this folder.

Example:

    flags()["use_tis"].set          # {"correction": {"use": "tis"}}
    advice(flags()["use_tis"])      # '[correction] use = "tis", or --correction tis'
    meaning(flags()["rm_type"], "math")         # {"reward": {"use": "math"}}
"""

import enum
import functools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import cast

from slime_core.sample import Json

NEWEST = "0.3.1"
"""The slime release that has these flags."""


class Takes(enum.Enum):
    """Type of a flag's value."""

    NOTHING = "nothing"
    EITHER = "either"
    """A switch that `--no-` turns off."""
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    JSON = "json"
    INTEGERS = "integers"
    TEXTS = "texts"
    AGAIN = "again"
    """A text; the flag may be repeated."""


class Outcome(enum.Enum):
    """How a flag translates."""

    SAME = "same"
    """A key here has the same name."""
    MAPPED = "mapped"
    """The flag is accepted and translated to another key or value."""
    EXPLAINED = "explained"
    """The equivalent is inexact, or depends on more than the flag; an error explains it."""
    ALWAYS = "nothing to write"
    """The flag requests fixed behaviour, or follows from another setting."""
    REFUSED = "refused"
    """The flag has no equivalent; the error suggests an alternative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag."""

    name: str
    """Name without leading dashes, with underscores."""
    group: str
    """Its argument group in slime or Megatron."""
    takes: Takes = Takes.TEXT
    same: bool = False
    """Whether a key here has the same name."""
    key: str = ""
    """Where its value is written: a key, or `role.choice.setting`."""
    values: Mapping[str, Json] = field(default_factory=dict)
    """Translations of values; a table is merged into the run file instead."""
    set: Mapping[str, Json] = field(default_factory=dict)
    """Further keys that the flag sets; for a switch, all keys."""
    weak: bool = False
    """Whether other flags override the keys that it sets."""
    special: str = ""
    """The function in `slime_compat.migrate.specials` that translates it, if that depends on other flags."""
    nearly: bool = False
    """Whether its equivalent here is inexact."""
    owner: str = ""
    """The `role.choice` that may have a setting of the same name."""
    always: str = ""
    """The reason why there is nothing to write."""
    refused: str = ""
    """The reason why the flag, or a value that is not listed, is refused, and what to do instead."""
    minor: bool = False
    """Whether training is the same without it."""
    harmless: tuple[str, ...] = ()
    """Values that change nothing here."""
    default: Json = None
    """slime's default, if ours differs."""
    config: str = ""
    """Its key in a model's config.json."""
    note: str = ""
    """Further advice for the user."""
    example: str = ""
    """An example value, for the reference page and the tests."""
    until: str = ""
    """The last slime release that had it; empty if slime still has it."""

    @property
    def typed(self) -> str:
        """The flag as typed, with dashes."""
        return "--" + self.name.replace("_", "-")

    @property
    def outcome(self) -> Outcome:
        """How the flag translates."""
        if self.same:
            return Outcome.SAME
        if self.special or (self.nearly and self.key):
            return Outcome.EXPLAINED
        if self.key or self.set:
            return Outcome.MAPPED
        return Outcome.ALWAYS if self.always else Outcome.REFUSED


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Every flag by name: slime's, then the Megatron flags that its scripts use."""
    found: dict[str, Flag] = {}
    for table in ("slime.toml", "megatron.toml"):
        groups = tomllib.loads(files(__package__).joinpath(table).read_text("utf-8"))
        for group, rows in cast("dict[str, dict[str, dict[str, Json]]]", groups).items():
            for name, row in rows.items():
                if name in found:
                    raise ValueError(f"{table}: {name} is listed twice, also in {found[name].group}")
                found[name] = _flag(name, group, row)
    return found


@functools.cache
def newer_names() -> Mapping[str, str]:
    """SGLang arguments that later releases renamed, by their old names."""
    return cast("dict[str, str]", tomllib.loads(files(__package__).joinpath("sglang.toml").read_text("utf-8")))


def _flag(name: str, group: str, row: dict[str, Json]) -> Flag:
    given: dict[str, object] = dict(row)
    given["takes"] = Takes(given.get("takes", "text"))
    given["harmless"] = tuple(cast("list[str]", given.get("harmless", [])))
    return Flag(name=name, group=group, **given)  # type: ignore[arg-type]  # fields of the table's own columns


def meaning(flag: Flag, value: Json) -> dict[str, Json] | None:
    """The keys that are exactly equivalent to a flag with this value; None if there are none."""
    if flag.outcome is not Outcome.MAPPED:
        return None
    if flag.takes is Takes.NOTHING:
        return {} if value is False else dict(flag.set) if value is True else None
    text = str(value)
    if text in flag.harmless:
        return {}
    ours = flag.values.get(text, value)
    if isinstance(ours, dict) and text in flag.values:
        return ours
    if flag.refused and text not in flag.values:
        return None
    return _with(flag.set, flag.key.split("."), ours)


def _with(tables: Mapping[str, Json], path: Sequence[str], value: Json) -> dict[str, Json]:
    inner = tables.get(path[0])
    below = inner if isinstance(inner, dict) else {}
    return {**tables, path[0]: _with(below, path[1:], value) if len(path) > 1 else value}


def key_of(flag: Flag) -> str:
    """The single key that replaces the flag; empty if it needs more."""
    if flag.set or not flag.key:
        return ""
    role, _, rest = flag.key.partition(".")
    return role if rest in ("", "use") else ""


def advice(flag: Flag) -> str:
    """What to write instead, or why there is no equivalent."""
    parts = [flag.note] if flag.note else []
    if flag.special:
        pass
    elif flag.key and not key_of(flag):
        parts.append(_path(flag.key, flag.set))
    elif flag.set:
        parts.append(" and ".join(_setting(*leaf) for leaf in _leaves(flag.set)))
    elif flag.always:
        parts.append(f"leave it out: {flag.always}")
    if flag.refused:
        parts.append(flag.refused)
    if flag.owner:
        parts.append(f"a setting of [{flag.owner}], if the trainer has it; see `slime plugins show`")
    if flag.until:
        parts.insert(0, f"until {flag.until}")
    return "; ".join(parts)


def _path(key: str, sets: Mapping[str, Json]) -> str:
    *section, setting = key.split(".")
    chosen = "".join(f'[{role}] use = "{choice}" and ' for role, choice in _uses(sets))
    typed = " ".join(f"--{role.replace('_', '-')} {choice}" for role, choice in _uses(sets))
    file, line = f"[{'.'.join(section)}] {setting} = …", f"--{_typed(section)}.{setting} …"
    calls = ", calls the function as slime does" if setting == "path" else ""
    return f"{chosen}{file}, or {f'{typed} ' if typed else ''}{line}{calls}"


def _typed(section: Sequence[str]) -> str:
    """A section as the prefix of a flag; names keep their underscores."""
    return ".".join((section[0].replace("_", "-"), *section[1:]))


def _uses(sets: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for role, table in sets.items():
        if isinstance(table, Mapping) and "use" in table:
            yield role, str(table["use"])


def _leaves(sets: Mapping[str, Json], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    for key, value in sets.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _setting(path: tuple[str, ...], value: Json) -> str:
    *section, key = path
    if section and key == "use":
        return f"[{section[0]}] use = {json.dumps(value)}, or --{section[0].replace('_', '-')} {value}"
    negated = f"--no-{key.replace('_', '-')}" if value is False else f"--{key.replace('_', '-')}"
    return f"{key} = {json.dumps(value)}, or {negated}"
