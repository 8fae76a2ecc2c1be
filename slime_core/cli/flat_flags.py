"""Flags of choices: settings that the installed specs declare as flat keys, grouped by role.

A settings model that is made late is made only when one of its flags is typed, so that help imports nothing heavy.

Example:

    flat_flags(FlatKeys(catalog), arguments)["trainer"].options      # --lora-rank INT, ...
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import click
from pydantic.fields import FieldInfo

from slime_core.catalog import Registered
from slime_core.cli.flags import flag, metavar, ranges, switch, typed_value
from slime_core.config import FlatKeys, Owner
from slime_core.errors import ConfigError, PluginError, did_you_mean
from slime_core.roles import PrefixedTable, Settings
from slime_core.sample import Json

NAMES = "NAME|JSON"
"""What a flag of several names takes."""


@dataclass(slots=True)
class RoleFlags:
    """What one role's choices add to a command line."""

    options: list[click.Option] = field(default_factory=list)
    """Their flags."""
    notes: list[str] = field(default_factory=list)
    """Flags that are known by their beginning alone."""
    unknown: dict[str, str] = field(default_factory=dict)
    """What to say of typed flags that begin as those do, and which nobody knows; names without their dashes."""


def flat_flags(
    flat_keys: FlatKeys, arguments: Sequence[str], values: Mapping[str, Json] | None = None
) -> dict[str, RoleFlags]:
    """The flags of all offered choices, by role.

    Args:
        flat_keys: what is offered.
        arguments: what is typed: a flag that only its beginning makes known is added if it is among them.
        values: keys of the run file, for installed settings.
    """
    typed = {key_typed(argument) for argument in arguments if argument.startswith("--")}
    typed |= {key.removeprefix("no_") for key in typed if key.startswith("no_")}
    keys = dict(flat_keys.owners)
    found: dict[str, RoleFlags] = {}
    for prefix, several in flat_keys.prefixes.items():
        for registered in several:
            spec, role_flags = registered.spec, found.setdefault(registered.spec.role, RoleFlags())
            if tables := [table.key for table in spec.prefixed if table.prefix == prefix]:
                role_flags.notes.append(_every(prefix, tables[0], registered))
                keys |= {key: owners for key in typed if (owners := flat_keys.owners_of(key))}
                continue
            names = () if spec.is_late else tuple(f"{prefix}{name}" for name in spec.model.model_fields)
            if spec.is_late:
                role_flags.notes.append(
                    f"{flag(prefix)}KEY VALUE: every setting of {spec.role} {spec.name}, "
                    f"`slime plugins show {registered.plugin}`"
                )
            elif spec.installed is not None:
                role_flags.notes.append(_every(prefix, spec.installed.key, registered))
            keys |= {key: owners for key in (*names, *typed) if (owners := flat_keys.owners_of(key))}
    models = _Models(arguments, values or {})
    for key, owners in keys.items():
        role_flags = found.setdefault(owners[0].role, RoleFlags())
        if said := models.unknown(key, owners):
            role_flags.unknown[key.replace("_", "-")] = said
        else:
            role_flags.options.append(_option(key, owners, models, is_typed=key in typed))
    return found


def _every(prefix: str, table: str, registered: Registered) -> str:
    spec = registered.spec
    told = f"every {table} setting of {spec.role} {spec.name}, `slime plugins show {registered.plugin}`"
    return f"{flag(prefix)}KEY VALUE: {told}"


class _Models:
    """Settings models of choices, and of what they pass on, which depends on what else is given."""

    def __init__(self, arguments: Sequence[str], values: Mapping[str, Json]) -> None:
        self._arguments, self._values = arguments, values
        self._made_of: dict[tuple[str, str], type[Settings] | None] = {}

    def of(self, owner: Owner, *, is_typed: bool) -> type[Settings] | None:
        """That which has a setting, if it is there or its flag was typed; what fails is refused where it is chosen."""
        registered = owner.registered
        if registered.spec.is_late and not is_typed:
            return None
        if not owner.table:
            with contextlib.suppress(PluginError):
                return registered.spec.model
            return None
        place = registered.qualified, owner.table
        if place not in self._made_of:
            prefixed = [table for table in registered.spec.prefixed if table.key == owner.table]
            self._made_of[place] = self._in_table(owner, prefixed[0]) if prefixed else self._made(owner)
        return self._made_of[place]

    def unknown(self, key: str, owners: Sequence[Owner]) -> str:
        """What is wrong with a flag that begins with a choice's prefix; empty where it is good, or nobody can tell."""
        names, shown = list[str](), ""
        for owner in owners:
            model = self.of(owner, is_typed=True) if owner.table else None
            if model is None or owner.setting in model.model_fields:
                return ""
            spec = owner.registered.spec
            own = [table.prefix for table in spec.prefixed if table.key == owner.table]
            several = model.model_fields if own else (*spec.model.model_fields, *model.model_fields)
            names += [flag((own[0] if own else spec.flat_prefix) + name) for name in several]
            shown = f"{spec.role}/{spec.name}"
        return f"{did_you_mean(flag(key), names)} `slime plugins show {shown}` lists all {len(names)}."

    def _made(self, owner: Owner) -> type[Settings] | None:
        spec = owner.registered.spec
        assert spec.installed is not None, "the owner of an installed setting"
        given = dict(self._section(owner)) | self._flat(spec.flat_prefix, spec.model.model_fields)
        with contextlib.suppress(PluginError, ConfigError):
            return spec.installed.model(given)
        return None

    def _in_table(self, owner: Owner, prefixed: PrefixedTable) -> type[Settings] | None:
        table = self._section(owner).get(prefixed.key)
        typed = [key_typed(each) for each in self._arguments if each.startswith("--")]
        names = [
            key.removeprefix(prefixed.prefix) for key in (*self._values, *typed) if key.startswith(prefixed.prefix)
        ]
        given = (dict(table) if isinstance(table, dict) else {}) | self._flat(prefixed.prefix, names)
        with contextlib.suppress(PluginError, ConfigError):
            return prefixed.model(given)
        return None

    def _section(self, owner: Owner) -> Mapping[str, Json]:
        """What the run file says in the table of the choice."""
        table = self._values.get(owner.role)
        section = table.get(owner.name) if isinstance(table, dict) else None
        return section if isinstance(section, dict) else {}

    def _flat(self, prefix: str, names: Iterable[str]) -> dict[str, Json]:
        """What the run file, or else the command line, says of some names behind a prefix."""
        found: dict[str, Json] = {}
        for name in names:
            for value in (self._values.get(prefix + name), typed_value(self._arguments, flag(prefix + name))):
                if value is not None:
                    found[name] = value
        return found


def key_typed(argument: str) -> str:
    """The key that an argument is the flag of."""
    return argument.removeprefix("--").partition("=")[0].replace("-", "_")


def _option(key: str, owners: Sequence[Owner], models: _Models, *, is_typed: bool) -> click.Option:
    """One flag, of all choices that have it."""
    infos = {}
    for owner in owners:
        model = models.of(owner, is_typed=is_typed)
        if model is not None and owner.setting in model.model_fields:
            allowed = "" if owner.table else _range(model, owner.setting)  # hundreds, of which each costs
            infos[owner] = (model.model_fields[owner.setting], allowed)
    role = owners[0].role.replace("_", " ")
    of = f"({role} {', '.join(dict.fromkeys(owner.registered.spec.name for owner in owners))})"
    if not infos:  # made late
        return click.Option([flag(key)], metavar="VALUE", help=of)
    first, _ = next(iter(infos.values()))
    hints = [*_same(allowed for _, allowed in infos.values()), *_same(_default(info) for info, _ in infos.values())]
    many = "list[" in str(first.annotation)
    if many:
        hints.append("several: repeat, or a JSON list")
    said = f"  [{'; '.join(hints)}]" if hints else ""
    text = f"{first.description or ''} {of}{said}".strip()
    if first.annotation is bool:
        return switch(key, text)
    return click.Option([flag(key)], multiple=many, metavar=NAMES if many else metavar(first), help=text)


def _range(model: type[Settings], setting: str) -> str:
    try:
        return ranges(model).get(setting, "")
    except Exception:  # a plugin's type without a schema costs its range in the help, nothing else
        return ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    default = info.default
    return "" if default is False or default in (None, {}, []) else f"default: {default}"


def _same(texts: Iterable[str]) -> list[str]:
    """The text that all of them have, if it is the same one; else nothing."""
    several = set(texts)
    return [text for text in several if text] if len(several) == 1 else []
