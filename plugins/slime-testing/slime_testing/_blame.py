"""Blame: names the import that changed what a process shares, by a look before and after every import statement.

Example:

    with (blame := Blame()):
        import a_plugin
    blame.culprits          # {"seeded or used the generator of `random`": "a_library.retries"}

It costs more than most imports do: it is for a second look, once a first one has found something.
"""

import builtins
from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Self

from slime_testing._state import difference, settings_state


class Blame:
    """Names the module whose own lines made a change, as long as it is entered."""

    def __init__(self) -> None:
        self.culprits: dict[str, str] = {}
        self._importing: list[str] = []
        self._import = builtins.__import__
        self._last: Mapping[str, object] = {}

    def __enter__(self) -> Self:
        self._last = settings_state()
        builtins.__import__ = self._watched
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        builtins.__import__ = self._import

    def note(self, what: str) -> None:
        """Note that something happened, in the innermost import that runs."""
        if self._importing:
            self.culprits.setdefault(what, self._importing[-1])

    def _watched(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  # as Python calls it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        self._look()
        package = str((globals or {}).get("__package__") or "").split(".")
        wanted = name or ", ".join(fromlist or ())  # `from . import retries` has no name
        self._importing.append(".".join([*package[: len(package) - level + 1], wanted]) if level else wanted)
        try:
            return self._import(name, globals, locals, fromlist or (), level)
        finally:
            self._look()
            self._importing.pop()

    def _look(self) -> None:
        now = settings_state()
        for what in difference(self._last, now):
            self.note(what)
        self._last = now
