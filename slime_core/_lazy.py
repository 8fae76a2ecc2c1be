"""Packages that import what they export when it is asked for: listing plugins needs few of the core's modules.

Example:

    if TYPE_CHECKING:
        from slime_core.roles.reward import Reward, RewardSpec

    __getattr__ = exports(__name__, __file__)

What stands under TYPE_CHECKING is the only list: mypy reads it, and so does `exports`, the first time that it is asked.
"""

import ast
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path


def exports(package: str, file: str) -> Callable[[str], object]:
    """The `__getattr__` of a package, PEP 562: imports the module of a name that the package's file declares."""

    @functools.cache
    def homes() -> dict[str, str]:
        return dict(_declared(Path(file)))

    def get(name: str) -> object:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def from_package(group: str, name: str, dist: str) -> object:
    """What another package offers under a name of ours.

    Args:
        group: of its entry point.
        name: of its entry point.
        dist: the first-party package that has it.

    Raises:
        ImportError: none that is installed has it; it says what to install.
    """
    for entry in entry_points(group=group, name=name):
        found: object = entry.load()
        return found
    raise ImportError(
        f"{name} comes with {dist}, which is not installed: from a checkout of slime-core, "
        f"`pip install -e . -e ./plugins/{dist}`"
    )


def _declared(file: Path) -> Iterator[tuple[str, str]]:
    """Name and module of each import under TYPE_CHECKING."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    yield from ((each.name, statement.module) for each in statement.names)
