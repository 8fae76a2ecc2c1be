"""The catalog: every choice of every role by name, with the plugin that offers it.

Discovery reads the entry points of the group `slime.plugins`. A worker process loads the same plugins in the same
order and versions. An unknown name raises an error with the nearest names and the package to install.

Example:

    catalog = Catalog.discover()
    catalog.find("reward", "math").spec          # also "slime-reward-math/math" and "./my.py:reward"
    catalog.choices("loss")                      # {"slime-train/policy_loss": RegisteredChoice(...), ...}
"""

import functools
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar, cast, overload

from slime_core.catalog.discovery import PluginState, PluginStatus, PluginWarning, select_plugins
from slime_core.catalog.loading import Listener, Loader, RegisteredChoice
from slime_core.catalog.packages import CORE, install_advice, owner_package
from slime_core.catalog.project_code import find_in_project, is_project_code
from slime_core.errors import ConfigError, PluginError, SlimeError, UnknownName, did_you_mean
from slime_core.roles import SPECS, ForeignName, PluginSet, Spec

PartT = TypeVar("PartT", covariant=True)


@dataclass(frozen=True, slots=True)
class BuiltChoice(Generic[PartT]):
    """The object that a choice's factory made, with its name for errors and metrics."""

    name: str
    """The name by which the run selected it."""
    plugin: str
    """The plugin that registered it."""
    part: PartT
    """The object that its factory made."""


def _unknown_choice(
    role: str, name: str, choices: Mapping[str, RegisteredChoice], statuses: Sequence[PluginStatus]
) -> Iterator[str]:
    spoken = role.replace("_", " ")
    plugin, slash, _ = name.rpartition("/")
    spellings = choices if slash else {each.spec.name for each in choices.values()}
    yield f"no {spoken} {name!r}.{did_you_mean(name, spellings)}"
    plugins = {status.plugin for status in statuses}
    if slash and plugin not in plugins:
        yield f"There is no plugin {plugin!r}.{did_you_mean(plugin, plugins)}"
    if choices:
        offered = (f"{each.spec.name} ({each.plugin} {each.version}".rstrip() + ")" for each in choices.values())
        yield f"Available: {', '.join(offered)}."
    else:
        yield f"No loaded plugin offers {'an' if spoken[0] in 'aeiou' else 'a'} {spoken}."
    for status in statuses:
        if status.failed:
            yield f"Not loaded, and might have offered it: {status}. See slime plugins check {status.plugin}"
        elif status.state is PluginState.EXCLUDED:
            yield f"Might offer it: {status}."
    plain = name.rpartition("/")[2]
    if (dist := owner_package(role, plain)) and dist not in plugins:
        yield f"{plain!r} comes with {dist}. {install_advice(dist)}"
    if CORE not in plugins:
        yield f"{CORE} itself is not installed, only importable; in its checkout: pip install -e ."


SpecT = TypeVar("SpecT", bound=Spec[object])

ALL_INSTALLED = PluginSet()
"""All installed plugins, in the order of discovery."""


class Catalog:
    """The installed plugins and their choices; made by `Catalog.discover`, then constant."""

    def __init__(self, loader: Loader, statuses: Sequence[PluginStatus], root: Path) -> None:
        self._loader = loader
        self._statuses = tuple(statuses)
        self._root = root
        self._in_project: dict[tuple[str, str], RegisteredChoice] = {}

    @classmethod
    def discover(cls, plugins: PluginSet = ALL_INSTALLED, *, strict: bool | None = None) -> "Catalog":
        """Load the installed plugins, then the plugin modules of the project.

        Args:
            plugins: which plugins, and in which order; SLIME_PLUGINS is the default of `only`.
            strict: whether every failure is an error; SLIME_PLUGINS_STRICT is the default. A required plugin and a
                module of the project must load in any case.

        Raises:
            UnknownName: `plugins` names a plugin that is not installed.
            ConfigError: `plugins` contradicts itself.
            PluginError: a required plugin, or with `strict` any plugin, fails to load; or another process of the run
                has another version of it.
        """
        if strict is None:
            strict = os.environ.get("SLIME_PLUGINS_STRICT", "0") not in ("", "0")
        loader, statuses = Loader(), []
        for candidate in select_plugins(plugins):
            status = candidate if candidate.state is PluginState.EXCLUDED else loader.load(candidate)
            statuses.append(status)
            if status.failed and (strict or candidate.required):
                raise PluginError(f"{status}. To see more: slime plugins check {candidate.plugin}")
            if status.failed:
                warnings.warn(str(status), PluginWarning, stacklevel=2)
        catalog = cls(loader, statuses, plugins.root or Path.cwd())
        catalog._refuse_other_versions(plugins.expected)
        return catalog

    def _refuse_other_versions(self, expected: Mapping[str, str]) -> None:
        here = {each.plugin: each.version for each in self.loaded}
        differing = [
            f"{plugin}: {version or 'no version'} there, {here.get(plugin, 'not loaded')} here"
            for plugin, version in expected.items()
            if here.get(plugin) != version
        ]
        if differing:
            raise PluginError(
                "the plugins differ from the plugins of the process that started this one:\n  "
                + "\n  ".join(differing)
                + "\n"
                "Install the same versions on every machine of the run."
            )

    @property
    def statuses(self) -> tuple[PluginStatus, ...]:
        """Status of every plugin, in the order of hook calls; excluded plugins come last."""
        return self._statuses

    @property
    def loaded(self) -> tuple[PluginStatus, ...]:
        """The loaded plugins, in the order of hook calls."""
        return tuple(each for each in self._statuses if each.state is PluginState.LOADED)

    @property
    def root(self) -> Path:
        """Base directory of the project's relative paths."""
        return self._root

    @property
    def plugin_set(self) -> PluginSet:
        """The same plugins in the same order and versions, for another process of the run."""
        loaded = self.loaded
        return PluginSet(
            only=tuple(dict.fromkeys(each.dist for each in loaded if each.dist)),
            modules=tuple(each.name for each in loaded if not each.dist),
            expected={each.plugin: each.version for each in loaded},
            root=self._root,
        )

    @overload
    def choices(self, role: str) -> Mapping[str, RegisteredChoice]: ...

    @overload
    def choices(self, role: type[SpecT]) -> Mapping[str, RegisteredChoice[SpecT]]: ...

    def choices(
        self, role: str | type[SpecT]
    ) -> Mapping[str, RegisteredChoice] | Mapping[str, RegisteredChoice[SpecT]]:
        """Choices of a role by qualified name. If `role` is a spec class, the result is typed with it.

        Raises:
            UnknownName: the role does not exist.
        """
        if not isinstance(role, str):
            # `Loader` rejects objects that are not the role's spec.
            return cast(Mapping[str, RegisteredChoice[SpecT]], self.choices(role.role))
        if role not in SPECS:
            raise UnknownName(f"no role {role!r}.{did_you_mean(role, SPECS)} Roles: {', '.join(SPECS)}.")
        return MappingProxyType(self._loader.choices[role])

    @overload
    def find(self, role: str, name: str) -> RegisteredChoice: ...

    @overload
    def find(self, role: type[SpecT], name: str) -> RegisteredChoice[SpecT]: ...

    def find(self, role: str | type[SpecT], name: str) -> RegisteredChoice | RegisteredChoice[SpecT]:
        """The choice that `name` selects in a run file.

        Args:
            role: name of the role, or the class of its specs, which types the result.
            name: `math`; `slime-reward-math/math` if several plugins offer a `math`; or, for rewards,
                generators and filters, code of the project: `./my.py:fn`, `package.module:fn`,
                `package.module.fn`.

        Raises:
            UnknownName: no plugin offers it; the message lists choices and plugins that failed to load.
            ConfigError: several plugins offer it.
            PluginError: code of the project cannot be imported, or does not fit the role.
        """
        if not isinstance(role, str):
            return cast(RegisteredChoice[SpecT], self.find(role.role, name))
        choices = self.choices(role)
        if is_project_code(name):
            key = (role, name)
            if key not in self._in_project:
                self._in_project[key] = find_in_project(role, name, self._root)
            return self._in_project[key]
        if name in choices:
            return choices[name]
        found = [each for each in choices.values() if each.spec.name == name]
        if not found:
            raise UnknownName(" ".join(_unknown_choice(role, name, choices, self._statuses)))
        if len(found) > 1:
            names = " or ".join(each.qualified for each in found)
            raise ConfigError(f"{role} {name!r} is offered by {len(found)} plugins: write {names}")
        return found[0]

    @functools.cached_property
    def foreign_names(self) -> tuple[ForeignName, ...]:
        """Other frameworks' names for our keys, from all plugins; used for unknown keys.

        Raises:
            PluginError: a plugin's list of names is invalid.
        """
        return tuple(self._loader.names())

    def listeners(self, hook: str) -> tuple[Listener, ...]:
        """Implementations of a hook: `tryfirst` first, `trylast` last, the others in the order of plugins."""
        return self._loader.listeners(hook)


# Worker processes: load the driver's plugins in the same order and versions, or raise an error that names the worker.


def discover_in_worker(plugins: PluginSet, worker: str) -> Catalog:
    """Load the driver's plugins in a worker process.

    Args:
        plugins: the driver's `catalog.plugin_set`, or PluginSet() for all plugins installed here.
        worker: name of the worker in errors, "trainer 3".

    Raises:
        PluginError: a plugin is missing, broken or has another version here; names worker, machine and process.
    """
    try:
        return Catalog.discover(plugins)
    except SlimeError as error:
        raise PluginError(f"{worker} on {socket.gethostname()} (process {os.getpid()}): {error}") from error
