"""Packages that import what they export when it is asked for: listing plugins needs few of the core's modules.

Example:

    if TYPE_CHECKING:
        from slime_core.roles.reward import Reward, RewardSpec      # for mypy, and for `__all__`

    _HOMES = {"slime_core.roles.reward": "Reward RewardSpec"}

    __getattr__ = exports(__name__, _HOMES)
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, PEP 562.

    Args:
        package: its name.
        homes: by module, the names that the package has from there, with a space between two.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home_of[name]), name)
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
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        found: object = entry.load()
        return found
    raise ImportError(
        f"{name} comes with {dist}, which is not installed: from a checkout of slime-core, "
        f"`pip install -e . -e ./plugins/{dist}`"
    )
