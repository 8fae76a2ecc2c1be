"""Writes the keys of each source (run file, flags) in one canonical form, then merges the sources.

Other frameworks' names become ours, and flat plugin keys move into their choice's section. `loss_type` becomes
`[loss] use`. A plain merge then lets a flag override every spelling of its key in the run file.

Example:

    canonical([{"advantage_estimator": "gspo"}, {"eps_clip": 3e-4}], catalog).values
    # {"advantage": {"use": {"grpo": 1.0}}, "loss": {"use": {"gspo": 1.0}, "gspo": {"eps_clip": 3e-4}}}
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic import ValidationError

from slime_core.catalog import (
    Catalog,
    PluginWarning,
    RegisteredChoice,
    install_advice,
    is_project_code,
    package_of_foreign_names,
    package_of_key,
)
from slime_core.config.keys import FAMILY_OF_KEY, ClusterArgs
from slime_core.config.run_file import TABLE, merge
from slime_core.config.settings import DEFAULT_USE, parse_use
from slime_core.errors import ConfigError, PluginError, SlimeError, did_you_mean
from slime_core.roles import SELECTABLE, SPECS, EngineSpec, ForeignName, LossSpec, TrainerSpec
from slime_core.sample import Json

ROLE_OF_ALIAS: dict[str, str] = {spec.also_chosen_by: role for role, spec in SPECS.items() if spec.also_chosen_by}
"""slime's key for the choice of a role, such as `loss_type` -> the role."""
_OWN = {*FAMILY_OF_KEY, *SELECTABLE, *ROLE_OF_ALIAS, TABLE}
"""Keys of every run. No choice may declare one of them as a flat key."""
KeyPath = tuple[str, ...]
"""Keys from the outermost table to a value."""


# Flat keys of choices: by their names, or by a prefix.


class Owner(NamedTuple):
    """A choice that has a flat key, and where the key lies in the choice's section."""

    registered: RegisteredChoice
    """The choice."""
    place: KeyPath
    """The setting, or the key of a nested table and the setting in it."""

    @property
    def role(self) -> str:
        """The role of the choice."""
        return self.registered.spec.role

    @property
    def name(self) -> str:
        """The name of the choice."""
        return self.registered.spec.name


class FlatKeys:
    """The flat keys of a catalog's choices."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._offered = [each for role in SELECTABLE for each in catalog.choices(role).values()]

    @functools.cached_property
    def owners(self) -> Mapping[str, tuple[Owner, ...]]:
        """The choices that declare each key by its full name, in the order of roles and plugins."""
        found: dict[str, tuple[Owner, ...]] = {}
        for registered in self._offered:
            try:
                names = registered.spec.flat_names
            except PluginError as error:  # refused only where it is chosen
                warnings.warn(str(error), PluginWarning, stacklevel=2)
                continue
            for key in dict.fromkeys(names):
                if key not in _OWN:
                    found[key] = (*found.get(key, ()), Owner(registered, (key,)))
        return found

    def owners_of(self, key: str) -> tuple[Owner, ...]:
        """Choices declaring the key; if none, and no framework uses it, those with its prefix."""
        if key in _OWN or key in self.owners or any(each.name == key for each in self._catalog.foreign_names):
            return self.owners.get(key, ())
        return tuple(owner for each in self._offered if (owner := _behind_prefix(each, key)))

    def foreign(self, key: str) -> ForeignName | None:
        """The foreign name that translates exactly to keys here, or None. The first plugin's wins."""
        if key in _OWN or key in self.owners:
            return None
        return next((each for each in self._catalog.foreign_names if each.name == key and each.means), None)


def prefixes(registered: RegisteredChoice) -> dict[str, KeyPath]:
    """Map each key prefix of a choice to the table of its keys; () means the choice's own section."""
    spec = registered.spec
    own: dict[str, KeyPath] = {spec.flat_prefix: ()} if spec.flat_prefix else {}
    return {prefix: (key,) for prefix, key in spec.prefixed.items()} | own


def _behind_prefix(registered: RegisteredChoice, key: str) -> Owner | None:
    spec = registered.spec
    for prefix, table in prefixes(registered).items():
        if key.startswith(prefix) and key != prefix:
            setting = key.removeprefix(prefix)
            if not table and spec.installed is not None and setting not in spec.model.model_fields:
                table = (spec.installed.key,)
            return Owner(registered, (*table, setting))
    return None


def key_faults(registered: RegisteredChoice) -> Iterator[str]:
    """Yield a sentence for each flat key of a choice that the core already uses."""
    for key in registered.spec.flat_names:
        if key in _OWN:
            choice = f"plugin {registered.plugin}: {registered.spec.role} {registered.spec.name!r}"
            yield f"{choice} declares the flat key {key!r}, which is a key of every run: leave it out of flat_keys"


# The canonical form of several sources.


class Canonical(NamedTuple):
    """The merged sources, in canonical form."""

    values: dict[str, Json]
    """Keys of the core, tables of roles, and `[plugins]`."""
    problems: list[str]
    """A sentence for each key that none of the run's choices has, or more than one."""
    notes: list[str]
    """A sentence for each name of another framework that was replaced by ours."""

    def required(self) -> dict[str, Json]:
        """The values. Raises ConfigError: there are problems."""
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        return self.values


def canonical(sources: Sequence[Mapping[str, Json]], catalog: Catalog) -> Canonical:
    """Convert each source (the run file, then the flags) to canonical form and merge them; a later source wins.

    Raises:
        ConfigError: two keys of one source contradict each other, or a value is not a table where one is needed.
        PluginError: a choice declares a key of the core.
    """
    canonicalizer = _Canonicalizer(catalog)
    ours = [canonicalizer.with_own_keys(source, sources[place:]) for place, source in enumerate(sources, 1)]
    canonicalizer.merged = _merged(ours)
    for role in SELECTABLE:
        for name in _used(canonicalizer.merged, role):
            with contextlib.suppress(SlimeError):
                canonicalizer.chosen[role, name] = catalog.find(role, name)
    if faults := [fault for registered in canonicalizer.chosen.values() for fault in key_faults(registered)]:
        raise PluginError("\n".join(faults))
    canonical_sources = [canonicalizer.with_sections(source) for source in ours]
    try:
        _place_counts(canonical_sources, canonicalizer.chosen)
    except ConfigError as error:
        canonicalizer.problems.append(str(error))
    return Canonical(_merged(canonical_sources), list(dict.fromkeys(canonicalizer.problems)), canonicalizer.notes)


class _Canonicalizer:
    """Converts sources one by one and collects the problems."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, self.flat_keys = catalog, FlatKeys(catalog)
        self.merged: Mapping[str, Json] = {}
        self.chosen: dict[KeyPath, RegisteredChoice] = {}
        self.problems: list[str] = []
        self.notes: list[str] = []

    def with_own_keys(self, source: Mapping[str, Json], later: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
        # Drop aliases that a later source sets; otherwise `gspo` leaves its loss behind.
        overridden = {key for each in later for key in each if key in ROLE_OF_ALIAS or self.flat_keys.foreign(key)}
        values = {key: value for key, value in source.items() if key not in overridden}
        for key in [*values]:
            if name := self.flat_keys.foreign(key):
                self._replace(values, name, values.pop(key))
        for key in [key for key in ROLE_OF_ALIAS if key in values]:
            role, value = ROLE_OF_ALIAS[key], values.pop(key)
            assignment = f"{key} = {value!r}"
            losses = (each.spec for each in self.catalog.choices(LossSpec).values())
            estimator = next((spec.estimator for spec in losses if spec.name == value), "")
            if role == "advantage" and estimator:
                put(values, assignment, ("loss", "use"), value)
                value = estimator
            put(values, assignment, (role, "use"), value)
        return values

    def _replace(self, values: dict[str, Json], name: ForeignName, value: Json) -> None:
        meant = name.means(value) if name.means else None
        if meant is None:  # reported as an unknown key
            values[name.name] = value
            return
        leaves = [*_leaves(meant)]
        for path, each in leaves:
            put(values, f"{name.name} = {value!r}", path, each)
        shown = " and ".join(f"{'.'.join(path)} = {each!r}" for path, each in leaves)
        whose = f"{name.framework}'s" if name.framework else "from elsewhere"
        self.notes.append(f"{name.name} is {whose}: {shown or 'that is already the default here'}")

    def with_sections(self, source: Mapping[str, Json]) -> dict[str, Json]:
        values = dict(source)
        for key in [key for key in source if key not in _OWN]:
            value, paths = values.pop(key), self._paths(key)
            if len(paths) == 1:
                put(values, f"{key} = {value!r}", next(iter(paths)), value)
            elif paths:
                self.problems.append(_ambiguous_key(key, paths))
            elif owners := self.flat_keys.owners_of(key):
                self.problems += self._unused_key(key, owners)
            else:
                hint = hint_for(key, value, self.catalog) or " `slime train --help all` lists every key."
                self.problems.append(f"unknown key {key!r}.{hint}")
        return values

    def _paths(self, key: str) -> dict[KeyPath, RegisteredChoice]:
        offered = {(each.role, each.registered.qualified): each for each in self.flat_keys.owners_of(key)}
        paths: dict[KeyPath, RegisteredChoice] = {}
        for (role, name), registered in self.chosen.items():
            owner = offered.get((role, registered.qualified))
            if owner is None and is_project_code(registered.qualified):
                named = key in registered.spec.flat_names
                owner = Owner(registered, (key,)) if named else _behind_prefix(registered, key)
            if owner is not None:
                paths[(role, name, *owner.place)] = registered
        return paths

    def _unused_key(self, key: str, owners: Sequence[Owner]) -> Iterator[str]:
        names: dict[str, list[str]] = {}
        for owner in owners:
            names.setdefault(owner.role, []).append(repr(owner.name))
        used = {role: list(_used(self.merged, role)) for role in names}
        if any((role, name) not in self.chosen for role in names for name in used[role]):
            return  # the choice itself is unknown, which is reported
        has = " or of ".join(f"{role.replace('_', ' ')} {' or '.join(several)}" for role, several in names.items())
        uses = ", ".join(f"{role}.use is {', '.join(map(repr, each)) or 'empty'}" for role, each in used.items())
        first = owners[0]
        choice = f'[{first.role}] use = "{first.name}" or --{first.role.replace("_", "-")} {first.name}'
        yield f"{key} has no effect here: it is a setting of {has}, and {uses}; leave it out, or choose {choice}"


def put(values: dict[str, Json], assignment: str, path: KeyPath, value: Json) -> None:
    """Put a value at a path of nested tables. Raises ConfigError: it has another value, or its parent is no table."""
    table = values
    for part in path[:-1]:
        inner = table.get(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{part} must be a table, got {inner!r}")
        table[part] = inner = dict(inner)
        table = inner
    if path[-1] in table and _comparable(path, table[path[-1]]) != _comparable(path, value):
        raise ConfigError(f"{assignment} contradicts {'.'.join(path)} = {table[path[-1]]!r}: give one of them")
    table[path[-1]] = value


def _comparable(path: KeyPath, value: Json) -> Json:
    if path[-1] == "use":
        return dict(parse_use(path[0], value))
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _leaves(table: Mapping[str, Json], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Json]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _used(values: Mapping[str, Json], role: str) -> Mapping[str, float]:
    table = values.get(role)
    if not isinstance(table, dict) or "use" not in table:
        return DEFAULT_USE[role]
    try:
        return parse_use(role, table["use"])
    except ConfigError:
        return {}


def _ambiguous_key(key: str, paths: Mapping[KeyPath, RegisteredChoice]) -> str:
    has = " and of ".join(f"{role.replace('_', ' ')} {each.spec.name!r}" for (role, *_), each in paths.items())
    tables = " and ".join(f"[{'.'.join(path[:-1])}] {path[-1]} = …" for path in paths)
    return f"{key} is a setting of {has}, and this run uses both: write it in the table of one of them, {tables}"


# Worker counts: `actor_num_gpus_per_node` and similar keys set the workers of the chosen trainer and engine.


def _merged(sources: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    return functools.reduce(merge, sources, {})


def _place_counts(sources: Sequence[dict[str, Json]], chosen: Mapping[KeyPath, RegisteredChoice]) -> None:
    # Writes each worker count into the source that sets it, as a setting of the trainer or the engine.
    values = _merged(sources)
    try:
        counts = ClusterArgs.model_validate({key: values[key] for key in ClusterArgs.model_fields if key in values})
    except ValidationError:  # reported with the other keys
        return
    for (role, name), registered in chosen.items():
        if role in ("trainer", "engine"):
            key = cast(EngineSpec | TrainerSpec, registered.spec).workers_key
            place = _place_ranks if role == "trainer" else _place_engines
            place(sources, counts, name, (role, name, key) if key else ())


def _place(
    sources: Sequence[dict[str, Json]], keys: Sequence[str], assignment: str, path: KeyPath, number: int
) -> None:
    last = [source for source in sources if any(key in source for key in keys)][-1]
    put(last, f"{assignment} = {number}", path, number)
    if _value_at(sources, path) != number:  # a later source overrides it
        for source in sources:
            for key in keys:
                source.pop(key, None)


def _value_at(sources: Sequence[Mapping[str, Json]], path: KeyPath) -> Json:
    value: Json = _merged(sources)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return _comparable(path, value)


def _place_ranks(sources: Sequence[dict[str, Json]], counts: ClusterArgs, trainer: str, path: KeyPath) -> None:
    nodes, each = counts.actor_num_nodes, counts.actor_num_gpus_per_node
    if each is None and nodes is not None:
        raise ConfigError("actor_num_nodes has no effect here: give actor_num_gpus_per_node, the ranks on each node")
    if each is None:
        return
    if not path:
        raise ConfigError(
            f"actor_num_gpus_per_node has no effect here: trainer {trainer!r} has no setting for it; leave it out"
        )
    keys = ("actor_num_nodes", "actor_num_gpus_per_node")
    _place(sources, keys, " * ".join(keys), path, (nodes or 1) * each)


def _place_engines(sources: Sequence[dict[str, Json]], counts: ClusterArgs, engine: str, path: KeyPath) -> None:
    total, each = counts.rollout_num_gpus, counts.rollout_num_gpus_per_engine
    keys = ("rollout_num_gpus", "rollout_num_gpus_per_engine")
    if each is not None and not path:
        raise ConfigError(
            f"rollout_num_gpus_per_engine has no effect here: engine {engine!r} has no setting for it; leave it out"
        )
    if each is not None:
        _place(sources, keys[1:], keys[1], path, each)
    if total is None:
        return
    written = _value_at(sources, path) if path else None
    each = (written if isinstance(written, int) else 0) or 1
    if path and written is None:
        _place(sources, keys[:1], keys[1], path, each)
    if total % each:
        raise ConfigError(
            f"rollout_num_gpus = {total} is not a multiple of rollout_num_gpus_per_engine = {each}: "
            f"{total // each} engines leave {total % each} over"
        )
    _place(sources, keys, " / ".join(keys), ("rollout_num_engines",), total // each)


# Messages about unknown keys: the nearest spelling, our name for a foreign one, the package to install.


def hint_for(
    key: str, value: Json, catalog: Catalog, spell: Callable[[str], str] = str, others: Iterable[str] = ()
) -> str:
    """Return a hint for an unknown key: our name for a foreign one, a package to install, or a spelling; or "".

    `spell` formats one of our keys like the typed one, as a flag for instance. `others` are further candidates.
    """
    plain = key.lower().replace("-", "_")
    names = [each for each in catalog.foreign_names if each.name == plain]
    if names:
        return "".join(dict.fromkeys("".join(_parts(each, value, spell)) for each in names))
    dist, choices = package_of_key(plain)
    if dist and dist not in {each.dist for each in catalog.loaded}:
        owners = " or ".join(f"{role} {name!r}" for role, _, name in (each.partition("/") for each in choices))
        return f" It is a setting of {owners}, which comes with {dist}. {install_advice(dist)}"
    nearest = did_you_mean(spell(key), [*map(spell, (*_OWN, *FlatKeys(catalog).owners)), *others])
    dist, frameworks = package_of_foreign_names()
    if catalog.foreign_names or dist in {each.dist for each in catalog.loaded}:
        return nearest
    known = f"{dist} knows what they are called here. {install_advice(dist)}"
    return f"{nearest} A name of {', '.join(frameworks)}? {known}"


def _parts(name: ForeignName, value: Json, spell: Callable[[str], str]) -> Iterator[str]:
    whose = f"{name.framework}'s" if name.framework else "Their"
    if name.key:
        yield f" Did you mean {spell(name.key)!r}?"
    if str(value) in name.values:
        yield f" {whose} {value!r} is {name.values[str(value)]!r} here."
    if name.advice and name.key:
        yield f" {name.advice}."
    elif name.advice:
        yield f" It is {whose}: {name.advice}." if name.framework else f" {name.advice}."
