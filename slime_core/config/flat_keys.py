"""Places flat keys of plugins and keys of other frameworks into the right section; rejects unknown keys.

A spec may declare some settings as flat keys of a run (`Spec.flat_keys`, `Spec.flat_prefix`). Such a key goes into
the section of the choice that the run uses. The error for an unknown key contains the nearest key.

Example:

    FlatKeys(catalog).place({"advantage_estimator": "gspo", "eps_clip": 3e-4}).values
    # {"advantage": {"use": "grpo"}, "loss": {"use": "gspo", "gspo": {"eps_clip": 3e-4}}}
    unknown_key("learning_rate", 1e-5, known, catalog)  # "unknown key 'learning_rate'. Did you mean 'lr'?"
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from slime_core.catalog import (
    Catalog,
    PluginWarning,
    Registered,
    how_to_install,
    is_in_project,
    key_brought_by,
    who_knows_foreign_names,
)
from slime_core.config.family import ClusterArgs
from slime_core.config.keys import FAMILY_OF_KEY
from slime_core.config.run_file import TABLE
from slime_core.config.settings import DEFAULT_USE, parse_use
from slime_core.errors import ConfigError, PluginError, SlimeError, did_you_mean
from slime_core.roles import SELECTABLE, SPECS, EngineSpec, ForeignName, LossSpec, TrainerSpec
from slime_core.sample import Json

# Flat keys: settings that specs declare as keys of a run, too; each lands in the section of the choice that is made.

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


# What is said about a key that nobody has: the nearest spelling, ours for a name from elsewhere, what to install.


def unknown_key(key: str, value: Json, known: Iterable[str], catalog: Catalog) -> str:
    """The message about a key of a run file."""
    hint = hint_for(key, value, catalog) or did_you_mean(key, known)
    return f"unknown key {key!r}.{hint or ' `slime train --help` lists every key.'}{elsewhere(catalog)}"


def hint_for(key: str, value: Json, catalog: Catalog, spell: Callable[[str], str] = str) -> str:
    """A sentence to append about a key that somebody else has; "" where nobody is known to.

    Args:
        key: as it was typed, in any case and with '-' or '_'.
        value: what was given for it.
        catalog: which plugins are loaded.
        spell: how a key of ours is written where this one stood.
    """
    plain = key.lower().replace("-", "_")
    names = [each for each in catalog.foreign_names if each.name == plain]
    if names:
        return "".join(dict.fromkeys(_sentence(each, value, spell) for each in names))
    dist, choices = key_brought_by(plain)
    if dist and dist not in {each.dist for each in catalog.loaded}:
        owners = " or ".join(f"{role} {name!r}" for role, _, name in (each.partition("/") for each in choices))
        return f" It is a setting of {owners}, which comes with {dist}. {how_to_install(dist)}"
    return ""


def elsewhere(catalog: Catalog) -> str:
    """Who would know names of other frameworks, where no plugin does; "" where one is loaded."""
    dist, frameworks = who_knows_foreign_names()
    if catalog.foreign_names or dist in {each.dist for each in catalog.loaded}:
        return ""
    return f" A name of {', '.join(frameworks)}? {dist} knows what they are called here. {how_to_install(dist)}"


def _sentence(name: ForeignName, value: Json, spell: Callable[[str], str]) -> str:
    return "".join(_parts(name, value, spell))


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


# Taken names: keys and flags by the name that another framework has for exactly the same, written as ours.


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


# Workers: where the counts of `ClusterArgs` belong, whichever trainer and engine are chosen.


def place_workers(values: Mapping[str, Json], cluster: ClusterArgs, flat_keys: FlatKeys) -> dict[str, Json]:
    """The values with the counts in the sections of trainer and engine, and in `rollout_num_engines`.

    Args:
        values: with flat keys at their places.
        cluster: their counts.
        flat_keys: what is offered.

    Raises:
        ConfigError: a count contradicts what is there, or has no effect on what is chosen.
    """
    flat = dict(values)
    chosen = {role: (name, registered) for (role, name), registered in flat_keys.chosen(values).items()}
    if "trainer" in chosen:
        for said, path, count in _ranks(cluster, *chosen["trainer"]):
            put(flat, said, path, count)
    if "engine" in chosen:
        for said, path, count in _engines(cluster, values, *chosen["engine"]):
            put(flat, said, path, count)
    return flat


def spellings(key: str, values: Mapping[str, Json], flat_keys: FlatKeys) -> tuple[Path, ...]:
    """What else of a run file says the same as a count on the command line, or is counted by it."""
    counted = {
        role: (((role, name, own),) if (own := _workers_key(each)) else ())
        for (role, name), each in flat_keys.chosen(values).items()
        if role in ("trainer", "engine")
    }
    ranks, workers = counted.get("trainer", ()), counted.get("engine", ())
    return {
        "actor_num_nodes": ranks,
        "actor_num_gpus_per_node": ranks,
        "rollout_num_gpus": (("rollout_num_engines",),),
        "rollout_num_gpus_per_engine": (("rollout_num_engines",), *workers)
        if "rollout_num_gpus" in values
        else workers,
        "rollout_num_engines": (("rollout_num_gpus",),),
    }.get(key, ())


def _ranks(cluster: ClusterArgs, name: str, trainer: Registered) -> Iterator[tuple[str, Path, int]]:
    nodes, each = cluster.actor_num_nodes, cluster.actor_num_gpus_per_node
    if each is None:
        if nodes is not None:
            raise ConfigError(
                "actor_num_nodes has no effect here: give actor_num_gpus_per_node, the ranks on each node"
            )
        return
    key = _workers_key(trainer)
    if not key:
        raise ConfigError(
            f"actor_num_gpus_per_node has no effect here: trainer {name!r} has no setting that says how many ranks "
            "there are; leave it out"
        )
    count = (nodes or 1) * each
    yield f"actor_num_nodes * actor_num_gpus_per_node = {count}", ("trainer", name, key), count


def _engines(
    cluster: ClusterArgs, values: Mapping[str, Json], name: str, engine: Registered
) -> Iterator[tuple[str, Path, int]]:
    total, each = cluster.rollout_num_gpus, cluster.rollout_num_gpus_per_engine
    key = _workers_key(engine)
    if each is not None and not key:
        raise ConfigError(
            f"rollout_num_gpus_per_engine has no effect here: engine {name!r} has no setting that says how many "
            "workers it has; leave it out"
        )
    if each is None and total is not None:
        each = _written(values, name, key) or 1
    if each is not None and key:
        yield f"rollout_num_gpus_per_engine = {each}", ("engine", name, key), each
    if total is None or each is None:
        return
    if total % each:
        raise ConfigError(
            f"rollout_num_gpus = {total} is not a multiple of rollout_num_gpus_per_engine = {each}: "
            f"{total // each} engines leave {total % each} over"
        )
    yield f"rollout_num_gpus / rollout_num_gpus_per_engine = {total // each}", ("rollout_num_engines",), total // each


def _written(values: Mapping[str, Json], name: str, key: str) -> int | None:
    """How many workers the engine's own section says, where it does and well."""
    match values.get("engine"):
        case {**sections} if isinstance(section := sections.get(name), dict) and isinstance(section.get(key), int):
            return cast(int, section[key]) or None
    return None


def _workers_key(registered: Registered) -> str:
    return cast(EngineSpec | TrainerSpec, registered.spec).workers_key
