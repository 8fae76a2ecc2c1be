"""Plugins for tests: an installed distribution written without pip, and a catalog of what a test names.

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
    """Write the files and the metadata of a distribution, as pip would have installed them.

    Args:
        folder: where; to be put on `sys.path`.
        name: the distribution's name.
        files: source text by path below the folder.
        entry_points: entry points of the group `slime.plugins`, name to `module` or `module:object`.
        contracts: entry points of the group `slime.contracts`, ROLE.NAME to `module:class`.
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
