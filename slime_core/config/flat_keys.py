"""Flat keys: settings that specs declare as keys of a run, too; each lands in the section of the choice that is made.

Which there are is said by what is installed (`Spec.flat_keys`, `Spec.flat_prefix`), and by slime's two names for a role
(`Spec.also_chosen_by`).

Example:

    FlatKeys(catalog).place({"advantage_estimator": "gspo", "eps_clip": 3e-4}).values
    # {"advantage": {"use": "grpo"}, "loss": {"use": "gspo", "gspo": {"eps_clip": 3e-4}}}
"""

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slime_core.catalog import Catalog, PluginWarning, Registered, is_in_project
from slime_core.config.families import FAMILY_OF_KEY
from slime_core.config.plugin_table import TABLE
from slime_core.config.role_table import DEFAULT_USE, parse_use
from slime_core.errors import ConfigError, PluginError, SlimeError
from slime_core.roles import SELECTABLE, SPECS, LossSpec
from slime_core.sample import Json

CHOOSES: dict[str, str] = {spec.also_chosen_by: role for role, spec in SPECS.items() if spec.also_chosen_by}
"""slime's name for what a role uses -> the role."""
_OWN = {*FAMILY_OF_KEY, *SELECTABLE, *CHOOSES, TABLE}
"""What no choice can have for a flat key."""
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """A choice that has a flat key."""

    registered: Registered
    """The choice."""
    setting: str
    """Which of its settings it is."""
    table: str = ""
    """The table that it is in, of installed settings or with a prefix of its own; empty: it is the choice's own."""

    @property
    def role(self) -> str:
        """The role of the choice."""
        return self.registered.spec.role

    @property
    def name(self) -> str:
        """The name of the choice."""
        return self.registered.spec.name

    @property
    def place(self) -> Path:
        """Where it lies in the choice's section."""
        return (self.table, self.setting) if self.table else (self.setting,)

    @property
    def told(self) -> str:
        """How messages call it: loss 'gspo'."""
        return f"{self.role.replace('_', ' ')} {self.name!r}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A run file's values with every flat key of a choice at its place."""

    values: dict[str, Json]
    """Keys of the core, tables of roles, and keys that nobody has."""
    problems: tuple[str, ...]
    """A sentence for each flat key that no choice, or more than one choice, of this run has."""


class FlatKeys:
    """The flat keys of what a catalog offers."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @functools.cached_property
    def owners(self) -> Mapping[str, tuple[Owner, ...]]:
        """Who has each key that is declared by its name, in the order of roles and plugins."""
        found: dict[str, list[Owner]] = {}
        for role in SELECTABLE:
            for registered in self._catalog.choices(role).values():
                for key in self._names_of(registered):
                    found.setdefault(key, []).append(Owner(registered, key))
        return {key: tuple(several) for key, several in found.items() if key not in _OWN}

    @functools.cached_property
    def prefixes(self) -> Mapping[str, tuple[Registered, ...]]:
        """By prefix, the choices that have all keys which begin with it."""
        found: dict[str, list[Registered]] = {}
        for role in SELECTABLE:
            for registered in self._catalog.choices(role).values():
                for prefix in _prefixes(registered):
                    found.setdefault(prefix, []).append(registered)
        return {prefix: tuple(several) for prefix, several in found.items()}

    def owners_of(self, key: str) -> tuple[Owner, ...]:
        """Every choice that has a key: by its name, or else by a prefix, unless somebody else's name is meant."""
        if key in _OWN:
            return ()
        if named := self.owners.get(key):
            return named
        found = tuple(
            _behind(registered, key)
            for prefix, several in self.prefixes.items()
            if key.startswith(prefix) and key != prefix
            for registered in several
        )
        return () if found and key in self._foreign else found

    @functools.cached_property
    def _foreign(self) -> frozenset[str]:
        """Names that other frameworks have for keys."""
        return frozenset(each.name for each in self._catalog.foreign_names)

    def place(self, values: Mapping[str, Json]) -> Placed:
        """Put every flat key into the section of the choice that has it.

        Raises:
            ConfigError: one contradicts what stands at its place already, or its table is none.
            PluginError: a choice declares a key of the core.
        """
        flat: dict[str, Json] = {
            key: dict(value) if isinstance(value, dict) else value for key, value in values.items()
        }
        for name, role in CHOOSES.items():
            if name in flat:
                self._choose(flat, name, role)
        chosen = self.chosen(flat)
        if faults := [fault for registered in chosen.values() for fault in key_faults(registered)]:
            raise PluginError("\n".join(faults))
        problems = []
        for key in [key for key in flat if key not in _OWN]:
            paths = self._paths(key, chosen)
            if len(paths) == 1:
                put(flat, f"{key} = {values[key]!r}", next(iter(paths)), flat.pop(key))
            elif paths or self.owners_of(key):
                problems.append(_claimed_twice(key, paths) if paths else self._inert(key, flat))
                del flat[key]
        return Placed(flat, tuple(filter(None, problems)))

    def places_of(self, key: str, values: Mapping[str, Json]) -> tuple[Path, ...]:
        """Every place that a key may mean, and so every other spelling of it in a run file."""
        if key in CHOOSES:
            role = CHOOSES[key]
            also = (("loss", "use"), ("loss_type",)) if values.get(key) in self._losses() and role != "loss" else ()
            return ((role, "use"), *also)
        paths = self._paths(key, self.chosen(values))
        for owner in self.owners_of(key):
            for name in (owner.registered.spec.name, owner.registered.qualified):
                paths.setdefault((owner.role, name, *owner.place), owner)
        return tuple(paths)

    def chosen(self, values: Mapping[str, Json]) -> dict[Path, Registered]:
        """What is chosen by these values, by role and name; what cannot be found is refused later, with its reason."""
        found: dict[Path, Registered] = {}
        for role in SELECTABLE:
            for name in _used(values, role):
                with contextlib.suppress(SlimeError):
                    found[role, name] = self._catalog.find(role, name)
        return found

    def _paths(self, key: str, chosen: Mapping[Path, Registered]) -> dict[Path, Owner]:
        """Where a key lies with these choices."""
        offered = {(each.role, each.registered.qualified): each for each in self.owners_of(key)}
        paths: dict[Path, Owner] = {}
        for (role, name), registered in chosen.items():
            owner = offered.get((role, registered.qualified))
            if owner is None and is_in_project(registered.qualified):
                owner = _own(registered, key)
            if owner is not None:
                paths[(role, name, *owner.place)] = owner
        return paths

    def _names_of(self, registered: Registered) -> tuple[str, ...]:
        try:
            return registered.spec.flat_names
        except PluginError as error:  # harms only those who choose it
            warnings.warn(str(error), PluginWarning, stacklevel=2)
            return ()

    def _losses(self) -> dict[str, str]:
        """Losses that slime calls estimators, and the estimator that goes with each."""
        specs = [each.spec for each in self._catalog.choices(LossSpec).values()]
        return {spec.name: spec.estimator for spec in specs if spec.estimator}

    def _choose(self, flat: dict[str, Json], name: str, role: str) -> None:
        value = flat.pop(name)
        said = f"{name} = {value!r}"
        if role == "advantage" and isinstance(value, str) and (estimator := self._losses().get(value)):
            put(flat, said, ("loss", "use"), value)
            value = estimator
        put(flat, said, (role, "use"), value)

    def _inert(self, key: str, values: Mapping[str, Json]) -> str:
        """Why a key has no effect; empty where a choice of its role is not found, which is the trouble then."""
        owners = self.owners_of(key)
        roles = list(dict.fromkeys(owner.role for owner in owners))
        chosen = self.chosen(values)
        used = {role: list(_used(values, role)) for role in roles}
        if any((role, name) not in chosen for role in roles for name in used[role]):
            return ""
        names = {role: " or ".join(repr(each.name) for each in owners if each.role == role) for role in roles}
        has = " or of ".join(f"{role.replace('_', ' ')} {several}" for role, several in names.items())
        uses = ", ".join(f"{role}.use is {', '.join(map(repr, used[role])) or 'empty'}" for role in roles)
        first = owners[0].registered.spec
        return (
            f"{key} has no effect here: it is a setting of {has}, and {uses}; leave it out, or choose what has it, "
            f'[{first.role}] use = "{first.name}" or --{first.role.replace("_", "-")} {first.name}'
        )


def put(flat: dict[str, Json], said: str, path: Path, value: Json) -> None:
    """Put a value at a path of nested tables, which it may agree with.

    Raises:
        ConfigError: what stands there is another value, or no table.
    """
    table = flat
    for part in path[:-1]:
        inner = table.get(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{part} must be a table, got {inner!r}")
        table[part] = inner = dict(inner)
        table = inner
    if path[-1] in table and _comparable(path, table[path[-1]]) != _comparable(path, value):
        raise ConfigError(f"{said} contradicts {'.'.join(path)} = {table[path[-1]]!r}: give one of them")
    table[path[-1]] = value


def _used(values: Mapping[str, Json], role: str) -> Mapping[str, float]:
    """What a role uses, as far as it is written well; what is not is refused later, with its place."""
    table = values.get(role)
    if not isinstance(table, dict) or "use" not in table:
        return DEFAULT_USE[role]
    try:
        return parse_use(role, table["use"])
    except ConfigError:
        return {}


def _own(registered: Registered, key: str) -> Owner | None:
    """The setting that a choice of the project has under a flat key."""
    spec = registered.spec
    if key in spec.flat_names:
        return Owner(registered, key)
    is_behind = any(key.startswith(prefix) and key != prefix for prefix in _prefixes(registered))
    return _behind(registered, key) if is_behind else None


def _prefixes(registered: Registered) -> tuple[str, ...]:
    """What keys of a choice begin with: its own, and those of its tables."""
    spec = registered.spec
    return tuple(filter(None, (spec.flat_prefix, *(table.prefix for table in spec.prefixed))))


def _behind(registered: Registered, key: str) -> Owner:
    """The setting that a key with a choice's prefix means: one of its own, or else one of the installed software."""
    spec = registered.spec
    for table in spec.prefixed:
        if key.startswith(table.prefix):
            return Owner(registered, key.removeprefix(table.prefix), table.key)
    setting = key.removeprefix(spec.flat_prefix)
    if spec.installed is None or setting in spec.model.model_fields:
        return Owner(registered, setting)
    return Owner(registered, setting, spec.installed.key)


def _claimed_twice(key: str, paths: Mapping[Path, Owner]) -> str:
    has = " and of ".join(owner.told for owner in paths.values())
    tables = " and ".join(f"[{'.'.join(path[:-1])}] {path[-1]} = …" for path in paths)
    return f"{key} is a setting of {has}, which are chosen both: write it in the table of the one meant, {tables}"


def _comparable(path: Path, value: Json) -> Json:
    """A `use` in its one form, and a count that was typed as one, so that two spellings compare equal."""
    if path[-1] == "use":
        return dict(parse_use(path[0], value))
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def key_faults(registered: Registered) -> Iterator[str]:
    """A sentence for each flat key of a choice that is a key of the core already."""
    for key in registered.spec.flat_names:
        if key in _OWN:
            yield (
                f"plugin {registered.plugin}: {registered.spec.role} {registered.spec.name!r} declares the flat key "
                f"{key!r}, which is a key of every run: its author must leave it out of flat_keys"
            )
