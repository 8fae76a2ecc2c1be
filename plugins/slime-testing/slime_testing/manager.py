"""PluginManager: a catalog of the core and of what a test adds; nothing that happens to be installed is found.

Example:

    def test_it_offers_math(slime_plugins):                 # the fixture
        assert slime_plugins.add(my_plugin).catalog.find("reward", "math").spec.summary
"""

import dataclasses
from types import ModuleType
from typing import Self

from slime_core.catalog import Catalog
from slime_core.roles import PluginSet


class PluginManager:
    """Refuses discovery: every plugin is named."""

    def __init__(self) -> None:
        self._plugins = PluginSet(only=())

    def add(self, module: ModuleType | str) -> Self:
        """Add a plugin module: one that is imported, a dotted name, or a path, `./my_plugin.py`."""
        name = module if isinstance(module, str) else module.__name__
        self._plugins = dataclasses.replace(self._plugins, modules=(*self._plugins.modules, name))
        return self

    def from_installed(self, name: str) -> Self:
        """Add an installed plugin, by its distribution or entry point."""
        self._plugins = dataclasses.replace(self._plugins, only=(*(self._plugins.only or ()), name))
        return self

    @property
    def plugins(self) -> PluginSet:
        """What was added, for `check_plugin` and for contracts."""
        return self._plugins

    @property
    def catalog(self) -> Catalog:
        """The catalog of what was added, anew each time.

        Raises:
            UnknownName: something that was added is not installed.
            PluginError: something that was added cannot be loaded.
        """
        return Catalog.discover(self._plugins, strict=True)
