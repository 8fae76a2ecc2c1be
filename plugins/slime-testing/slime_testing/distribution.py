"""Plugins for tests: write an installed distribution without pip, and build a catalog of selected plugins.

write_distribution(tmp_path, "slime-reward-other", {"other.py": SOURCE}, entry_points={"reward-other": "other"})
monkeypatch.syspath_prepend(tmp_path)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Self

from slime_core.catalog import Catalog
from slime_core.roles import PluginSet


def write_distribution(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    entry_points: Mapping[str, str],
    contracts: Mapping[str, str] = MappingProxyType({}),
    version: str = "1.0",
    requires: Sequence[str] = ("slime-core>=0.1,<0.2",),
    readme: str = "",
) -> None:
    """Write a distribution's files and metadata like pip.

    Args:
        folder: target; put it on `sys.path`.
        name: the distribution's name.
        files: source text by path in the folder.
        entry_points: entry points in the group `slime.plugins`, name to `module` or `module:object`.
        contracts: entry points in the group `slime.contracts`, ROLE.NAME to `module:class`.
        version: the distribution's version.
        requires: its requirements.
        readme: its long description.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["[slime.plugins]", *(f"{name} = {value}" for name, value in entry_points.items())]
    lines += ["[slime.contracts]", *(f"{name} = {value}" for name, value in contracts.items())]
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    written = {
        **{folder / path: text for path, text in files.items()},
        info / "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n{readme}",
        info / "entry_points.txt": "\n".join([*lines, ""]),
    }
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class PluginManager:
    """Builds a catalog of only the plugins that were added."""

    def __init__(self) -> None:
        self._plugins = PluginSet(only=())

    def add(self, module: ModuleType | str) -> Self:
        """Add a plugin: an imported module, a dotted name, or a path, `./my_plugin.py`."""
        name = module if isinstance(module, str) else module.__name__
        self._plugins = dataclasses.replace(self._plugins, modules=(*self._plugins.modules, name))
        return self

    def from_installed(self, name: str) -> Self:
        """Add an installed plugin, by its distribution or entry point."""
        self._plugins = dataclasses.replace(self._plugins, only=(*(self._plugins.only or ()), name))
        return self

    @property
    def plugins(self) -> PluginSet:
        """The added plugins, for `check_plugin` and `RoleContract.plugins`."""
        return self._plugins

    @property
    def catalog(self) -> Catalog:
        """A new catalog of the added plugins.

        Raises:
            UnknownName: an added plugin is not installed.
            PluginError: an added plugin cannot be loaded.
        """
        return Catalog.discover(self._plugins, strict=True)
