"""Catalog: every choice of every role, by name, with the plugin that offers it.

    catalog = Catalog.discover()
    catalog.find("reward", "math").spec          # also "slime-reward-math/math" and "./my.py:reward"
    catalog.choices("loss")                      # {"slime-core/policy_loss": Registered(...), ...}

Discovery reads the entry points of the group `slime.plugins`, sorted. A plugin that cannot be loaded is a status
and one warning, and is named by the error about a choice that it might have offered.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast, overload

from slime_core.catalog._candidates import installed_candidates, project_candidates
from slime_core.catalog._in_project import find_in_project, is_in_project
from slime_core.catalog._loading import Listener, Loader
from slime_core.catalog._selection import allowed_by_environment, select
from slime_core.catalog._unknown import unknown_choice
from slime_core.catalog.registered import Registered
from slime_core.catalog.status import PluginDeprecation, PluginState, PluginStatus, PluginWarning
from slime_core.errors import ConfigError, PluginError, UnknownName, did_you_mean
from slime_core.roles import SPECS, ForeignName, PluginSet, Spec

SpecT = TypeVar("SpecT", bound=Spec[object])

ALL_INSTALLED = PluginSet()
"""Whatever is installed, in the order of discovery."""


class Catalog:
    """What is installed and what it offers; made by `Catalog.discover`, constant afterwards."""

    def __init__(self, loader: Loader, statuses: Sequence[PluginStatus], root: Path) -> None:
        self._choices = loader.choices
        self._listeners = loader.listeners()
        self._names = tuple(loader.names)
        self._statuses = tuple(statuses)
        self._root = root
        self._in_project: dict[tuple[str, str], Registered] = {}

    @classmethod
    def discover(cls, plugins: PluginSet = ALL_INSTALLED, *, strict: bool | None = None) -> "Catalog":
        """Load the installed plugins, then the plugin modules of the project.

        Args:
            plugins: which, and in which order; `only` is what SLIME_PLUGINS says unless it is given.
            strict: whether every failure is an error; by default what SLIME_PLUGINS_STRICT says. A plugin that is
                required, and a module of the project, must load in any case.

        Raises:
            UnknownName: `plugins` names one that is not installed.
            ConfigError: `plugins` contradicts itself.
            PluginError: a plugin cannot be loaded, and it was asked for or `strict` holds; or another process of the
                run has it in another version.
        """
        if strict is None:
            strict = os.environ.get("SLIME_PLUGINS_STRICT", "0") not in ("", "0")
        if plugins.only is None:
            plugins = replace(plugins, only=allowed_by_environment())
        root = plugins.root or Path.cwd()
        selected = select(installed_candidates(), plugins)
        loader, statuses = Loader(), []
        for candidate in [*selected.candidates, *project_candidates(plugins.modules, root)]:
            status = loader.load(candidate)
            statuses.append(status)
            if not status.failed:
                continue
            if strict or not candidate.dist or candidate in selected.required:
                raise PluginError(f"{status}. To see more: slime plugins check {candidate.plugin}")
            warnings.warn(str(status), PluginWarning, stacklevel=2)
        for text in loader.deprecated:
            warnings.warn(text, PluginDeprecation, stacklevel=2)
        catalog = cls(loader, [*statuses, *selected.excluded], root)
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
                "the plugins differ from those of the process that started this one:\n  "
                + "\n  ".join(differing)
                + "\n"
                "Install the same versions wherever the run has processes."
            )

    @property
    def statuses(self) -> tuple[PluginStatus, ...]:
        """What became of every plugin, in the order in which hooks are called; excluded ones come last."""
        return self._statuses

    @property
    def loaded(self) -> tuple[PluginStatus, ...]:
        """The plugins in use, in the order in which hooks are called."""
        return tuple(each for each in self._statuses if each.state is PluginState.LOADED)

    @property
    def root(self) -> Path:
        """Where relative files of the project lie."""
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

    @property
    def requirements(self) -> tuple[str, ...]:
        """A pip requirement for each distribution that a plugin was loaded from."""
        return tuple(dict.fromkeys(f"{each.dist}=={each.version}" for each in self.loaded if each.dist))

    @overload
    def choices(self, role: str) -> Mapping[str, Registered]: ...

    @overload
    def choices(self, role: type[SpecT]) -> Mapping[str, Registered[SpecT]]: ...

    def choices(self, role: str | type[SpecT]) -> Mapping[str, Registered] | Mapping[str, Registered[SpecT]]:
        """What plugins offer for a role, by qualified name; of a role that its spec's class names, with that type.

        Raises:
            UnknownName: there is no such role.
        """
        if not isinstance(role, str):
            # `Loader` refuses what is not the spec of its role.
            return cast(Mapping[str, Registered[SpecT]], self.choices(role.role))
        if role not in self._choices:
            raise UnknownName(f"no role {role!r}.{did_you_mean(role, SPECS)} Roles: {', '.join(SPECS)}.")
        return MappingProxyType(self._choices[role])

    @overload
    def find(self, role: str, name: str) -> Registered: ...

    @overload
    def find(self, role: type[SpecT], name: str) -> Registered[SpecT]: ...

    def find(self, role: str | type[SpecT], name: str) -> Registered | Registered[SpecT]:
        """The choice that a run file means by `name`.

        Args:
            role: name of the role, or the class of its specs, which types what comes back.
            name: `math`; `slime-reward-math/math` where several plugins offer a `math`; or, for rewards,
                generators and filters, code of the project: `./my.py:fn`, `package.module:fn`,
                `package.module.fn`.

        Raises:
            UnknownName: nobody offers it; the message lists what exists and which plugins failed to load.
            ConfigError: several plugins offer it.
            PluginError: code of the project that cannot be imported, or is not what the role needs.
        """
        if not isinstance(role, str):
            return cast(Registered[SpecT], self.find(role.role, name))
        choices = self.choices(role)
        if is_in_project(name):
            key = (role, name)
            if key not in self._in_project:
                self._in_project[key] = find_in_project(role, name, self._root)
            return self._in_project[key]
        if name in choices:
            return choices[name]
        found = [each for each in choices.values() if each.spec.name == name]
        if not found:
            raise UnknownName(unknown_choice(role, name, choices, self._statuses))
        if len(found) > 1:
            names = " or ".join(each.qualified for each in found)
            raise ConfigError(f"{role} {name!r} is offered by {len(found)} plugins: write {names}")
        return found[0]

    @property
    def foreign_names(self) -> tuple[ForeignName, ...]:
        """What other frameworks call our keys, as far as plugins say."""
        return self._names

    def listeners(self, hook: str) -> tuple[Listener, ...]:
        """Who implements a run hook or a rank hook, in the order of calls."""
        return self._listeners[hook]
