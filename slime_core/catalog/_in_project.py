"""Choices that are not a plugin: `./my.py:reward`, `package.module:Filter`, `package.module.function`.

The named object is a function, a class or a spec, and passes the same validation as a plugin's.
"""

from pathlib import Path
from types import ModuleType

from slime_core.catalog._late import blamed
from slime_core.catalog._modules import import_project_module
from slime_core.catalog._shapes import spec_of
from slime_core.catalog.registered import Registered
from slime_core.errors import PluginError, UnknownName, did_you_mean
from slime_core.roles import SPECS, Spec


def is_in_project(name: str) -> bool:
    """Whether a name points at a file or a module instead of a registered choice."""
    return ":" in name or name.endswith(".py") or ("." in name and "/" not in name)


def find_in_project(role: str, name: str, root: Path | None) -> Registered:
    """The choice that a file or a module of the project offers; relative files lie in `root`.

    Raises:
        UnknownName: no such file, module or attribute.
        PluginError: it cannot be imported, or is not what the role needs.
    """
    place, _, attribute = name.partition(":") if ":" in name or name.endswith(".py") else name.rpartition(".")
    if not attribute or not place:
        raise UnknownName(f"{role} {name!r} does not say which object: write {place or 'MODULE'}:NAME")
    offered = _lookup(role, name, import_project_module(place, root), place, attribute)
    try:
        spec = offered if isinstance(offered, Spec) else spec_of(role, attribute, offered)
    except (TypeError, ValueError, NameError) as error:
        raise PluginError(f"{role} {name!r}: {error}") from error
    if not isinstance(spec, SPECS[role]):
        raise PluginError(f"{role} {name!r} is a {type(spec).__name__}; expected a {SPECS[role].__name__}")
    return Registered(blamed(spec, place), qualified=name, plugin=place, dist="", version="")


def _lookup(role: str, name: str, module: ModuleType, place: str, attribute: str) -> object:
    try:
        return getattr(module, attribute)
    except AttributeError:
        own = [
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and not key.startswith("_")
        ]
        listed = f" It has {', '.join(own)}." if own else ""
        raise UnknownName(
            f"{role} {name!r}: {place} has no {attribute!r}.{did_you_mean(attribute, own)}{listed}"
        ) from None
