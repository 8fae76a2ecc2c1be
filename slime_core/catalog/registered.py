"""Registered: a spec together with who offers it and where its code is."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Generic

from typing_extensions import TypeVar

from slime_core.roles import Spec

SpecT = TypeVar("SpecT", bound=Spec[object], covariant=True, default=Spec[object])


@dataclass(frozen=True, slots=True)
class Registered(Generic[SpecT]):
    """One choice of a role, as a plugin or a file of the project offers it."""

    spec: SpecT
    """What was offered."""
    qualified: str
    """A name that finds it again, whatever else is installed: `plugin/name`, or `./file.py:name`."""
    plugin: str
    """The plugin: its distribution's name, or the module or file of the project."""
    dist: str
    """The distribution; empty for a module or file of the project."""
    version: str
    """The distribution's version; empty for a module or file of the project."""

    @property
    def origin(self) -> str:
        """Where its factory is defined, `file:line`; the module's name if there is no source."""
        return place_of(self.spec.factory)


def place_of(function: Callable[..., object]) -> str:
    """Where a function or a class is defined, `file:line`; the module's name if there is no source."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    try:
        path = inspect.getsourcefile(function)
        # Only a class must be looked for in the source: 0.1 s for the core's own choices, if each function were.
        line = code.co_firstlineno if (code := _code(function)) else inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        path = None
    if path is None:
        return str(getattr(function, "__module__", type(function).__module__))
    return f"{path}:{line}"


def _code(function: Callable[..., object]) -> CodeType | None:
    code: object = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
