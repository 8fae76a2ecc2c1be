"""Packages that import each exported name on first use, so that listing plugins loads few modules.

Example:

    if TYPE_CHECKING:
        from slime_core.roles.rewards import *
        from slime_core.sample import Sample as Sample
    else:
        __getattr__, __all__ = exports(__name__)
"""

import importlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_EXPORT = re.compile(r"^    from ([\w.]+) import \(?\s*(\w+) as \2\b", re.MULTILINE)
_ALL_OF = re.compile(r"^    from ([\w.]+) import \*", re.MULTILINE)
_DEFINED = re.compile(r"^(?:(?:class|def|async def) ([A-Za-z]\w*)|([A-Za-z]\w*)(?:: [^=\n]+)? = )", re.MULTILINE)


def exports(package: str) -> tuple[Callable[[str], object], list[str]]:
    """`__getattr__` (PEP 562) and `__all__` of a package, read from the source of its `__init__.py`.

    Exported are the names that its block `if TYPE_CHECKING:` imports under their own name, `Sample as Sample`, and all
    public names that a module of the package defines, `import *`. Type checkers read the block the same way.

    Args:
        package: its name.
    """
    module = vars(sys.modules[package])
    # `get_source` would import `tokenize`, and pytest's loader has only `get_data`.
    read, file = module["__loader__"].get_data, module["__file__"]
    source = read(file).decode()
    module_of = {name: home for home, name in _EXPORT.findall(source)}
    for home in _ALL_OF.findall(source):
        text = read(file.removesuffix("__init__.py") + home.rpartition(".")[2] + ".py").decode()
        module_of |= {kind or value: home for kind, value in _DEFINED.findall(text)}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module_of[name]), name)
        module[name] = value
        return value

    return get, sorted(module_of)


def from_package(group: str, name: str, dist: str) -> object:
    """Load the object that another package registers under an entry point of slime-core.

    Args:
        group: group of the entry point.
        name: name of the entry point.
        dist: the first-party package that provides it.

    Raises:
        ImportError: no installed package provides it; the message names the package to install.
    """
    if (entry := entry_point_of(group, name)) is not None:
        found: object = entry.load()
        return found
    raise ImportError(
        f"{name} comes with {dist}, which is not installed: from a checkout of slime-core, "
        f"`pip install -e . -e ./plugins/{dist}`"
    )


def entry_point_of(group: str, name: str) -> "EntryPoint | None":
    """The entry point of this name, not loaded; None if no installed package has one."""
    from importlib.metadata import entry_points

    return next(iter(entry_points(group=group, name=name)), None)
