"""Choices that are no plugin: `./my.py:reward`, `package.module:Filter`, `package.module.function`.

The named object is a function, a class or a spec, and passes the same validation as a plugin's.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from slime_core.catalog._modules import import_project_module
from slime_core.catalog._suggest import did_you_mean
from slime_core.catalog.registered import Registered
from slime_core.errors import PluginError, UnknownName
from slime_core.roles import SPECS, BufferContext, BufferFilter, Selection, Settings, Setup, Spec
from slime_core.sample import Group


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a role's object is called."""

    arguments: tuple[str, ...]
    is_async: bool
    method: str = "__call__"

    def __str__(self) -> str:
        return f"{'async ' if self.is_async else ''}def {{name}}({', '.join(self.arguments)})"


_SHAPES = {
    "reward": _Shape(("sample", "ctx"), is_async=True),
    "generator": _Shape(("sample", "ctx"), is_async=True),
    "group_filter": _Shape(("group", "ctx"), is_async=False),
    "buffer_filter": _Shape(("groups", "want", "ctx"), is_async=False, method="select"),
}


def is_in_project(name: str) -> bool:
    """Whether a name points at a file or a module instead of a registered choice."""
    return ":" in name or name.endswith(".py") or ("." in name and "/" not in name)


def find_in_project(role: str, name: str, root: Path | None) -> Registered:
    """The choice that a file or a module of the project offers; relative files lie in `root`.

    Raises:
        UnknownName: no such file, module or attribute, or a role that is chosen among plugins only.
        PluginError: it cannot be imported, or is not what the role needs.
    """
    if role not in _SHAPES:
        roles = ", ".join(_SHAPES)
        raise UnknownName(
            f"{role} {name!r} names code of the project, which is possible for {roles}. "
            "For this role write a plugin: a package with an entry point in the group slime.plugins."
        )
    place, _, attribute = name.partition(":") if ":" in name or name.endswith(".py") else name.rpartition(".")
    if not attribute or not place:
        raise UnknownName(f"{role} {name!r} does not say which object: write {place or 'MODULE'}:NAME")
    offered = _lookup(role, name, import_project_module(place, root), place, attribute)
    try:
        spec = offered if isinstance(offered, Spec) else _spec(role, attribute, offered)
    except (TypeError, ValueError, NameError) as error:
        raise PluginError(f"{role} {name!r}: {error}") from error
    if not isinstance(spec, SPECS[role]):
        raise PluginError(f"{role} {name!r} is a {type(spec).__name__}; expected a {SPECS[role].__name__}")
    return Registered(spec, qualified=name, plugin=place, dist="", version="")


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


def _spec(role: str, name: str, offered: object) -> Spec[object]:
    """A spec around a function or a class; raises TypeError if it does not fit the role."""
    shape = _SHAPES[role]
    settings = Settings
    if isinstance(offered, type):
        # Not getattr: every class can be called, by its metaclass.
        method = next((vars(each)[shape.method] for each in offered.__mro__ if shape.method in vars(each)), None)
        _check_callable(role, shape, method, f"{name}.{shape.method}", bound=False)
        factory, settings = _class_factory(offered)
    elif inspect.isfunction(offered):
        _check_callable(role, shape, offered, name, bound=True)
        factory = _function_factory(shape, offered)
    else:
        raise TypeError(f"{name} is a {type(offered).__name__}; expected a function, a class or a spec")
    return SPECS[role](name, functools.update_wrapper(factory, offered, updated=()), settings)


def _check_callable(role: str, shape: _Shape, function: object, name: str, *, bound: bool) -> None:
    wanted = str(shape).format(name=name.rpartition(".")[2])
    if not callable(function):
        raise TypeError(f"there is no {name}; a {role} has `{wanted}`")
    signature = inspect.signature(function)
    try:
        signature.bind(*(() if bound else ("self",)), *shape.arguments)
    except TypeError:
        raise TypeError(f"{name}{signature} cannot be called as `{wanted}`") from None
    if inspect.iscoroutinefunction(function) != shape.is_async:
        raise TypeError(f"{name} is {'not ' if shape.is_async else ''}`async def`; a {role} is `{wanted}`")


def _class_factory(offered: type) -> tuple[Callable[[Settings, Setup], object], type[Settings]]:
    """A factory for a class built without arguments or from `(settings, setup)`, and its settings model."""
    parameters = list(inspect.signature(offered).parameters)
    if not parameters:
        return lambda settings, setup: offered(), Settings
    if len(parameters) != 2:
        raise TypeError(f"{offered.__name__}({', '.join(parameters)}): expected no arguments or (settings, setup)")
    hint = get_type_hints(offered.__init__).get(parameters[0], Settings)  # type: ignore[misc]
    return lambda settings, setup: offered(settings, setup), hint


def _function_factory(shape: _Shape, function: Callable[..., object]) -> Callable[[Settings, Setup], object]:
    if shape.method == "select":
        return lambda settings, setup: _SelectFunction(function)  # type: ignore[arg-type]
    return lambda settings, setup: function


@dataclass(frozen=True, slots=True)
class _SelectFunction(BufferFilter):
    """A buffer filter made of a plain function."""

    function: Callable[[Sequence[Group], int, BufferContext], Selection]

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return self.function(groups, want, ctx)
