"""Registered: a spec together with who offers it and where its code is."""

import functools
import inspect
from dataclasses import dataclass

from slime_core.roles import Spec


@dataclass(frozen=True, slots=True)
class Registered:
    """One choice of a role, as a plugin or a file of the project offers it."""

    spec: Spec[object]
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
        factory = inspect.unwrap(self.spec.factory)
        while isinstance(factory, functools.partial):
            factory = factory.func
        try:
            path = inspect.getsourcefile(factory)
            _, line = inspect.getsourcelines(factory)
        except (OSError, TypeError):
            return getattr(factory, "__module__", type(factory).__module__)
        return f"{path}:{line}"
