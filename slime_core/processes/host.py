"""Host: what runs in a worker's process, whatever has started it: it builds the group's class and answers calls.

A launcher of others makes one in each of its processes.

Example:

    host = Host()
    reply = answered(lambda: host.build(spec, place, setup.plugins))        # a Reply, whatever happened
    reply = answered(lambda: host.call("train_step", (batch,)))
    host.close()
"""

import importlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from slime_core.catalog import discover_in_worker, find_project_files
from slime_core.errors import SlimeError
from slime_core.roles import Place, PluginSet, WorkerGroupSpec
from slime_core.secrets import REDACTOR, redact_output
from slime_core.terminal import drawn


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call."""

    value: object = None
    """What the method returned."""
    error: SlimeError | None = None
    """An error of ours, to be raised again in the driver as it is."""
    traceback: str = ""
    """Text of any other exception."""


class Host:
    """One worker's object, once it is built."""

    def __init__(self) -> None:
        """Build nothing yet; what this process prints from now on is without secrets."""
        redact_output(drawn)
        find_project_files()  # before anything that another process pickled is decoded here
        self._worker: object = None

    def build(self, spec: WorkerGroupSpec, place: Place, plugins: PluginSet | None) -> None:
        """Build `Class(rank, size, **arguments)`, with `place` where it takes one.

        Args:
            spec: the group.
            place: the worker's.
            plugins: the launcher's `setup.plugins`, which this process must have, too.

        Raises:
            PluginError: a plugin is missing, broken or of another version here.
            Exception: whatever the class raises.
        """
        if plugins is not None:
            discover_in_worker(plugins, f"{spec.name} {place.rank}")
        target = _load(spec.target)
        placed = {"place": place} if _takes_place(target) else {}
        self._worker = target(place.rank, spec.size, **spec.arguments, **placed)

    def call(self, method: str, given: tuple[object, ...]) -> object:
        """Call a method of it."""
        return getattr(self._worker, method)(*given)

    def close(self) -> None:
        """Let the worker close what it has, if it has a `close`; what it raises is printed."""
        if callable(close := getattr(self._worker, "close", None)):
            answered(close)


def answered(call: Callable[[], object]) -> Reply:
    """What a call returns or raises; what it raises is printed as well."""
    try:
        return Reply(call())
    except SlimeError as error:
        traceback.print_exc()
        return Reply(error=error)
    except Exception:
        traceback.print_exc()
        return Reply(traceback=REDACTOR.redact(traceback.format_exc()))


def _load(target: str) -> Callable[..., object]:
    """The class that `package.module:Class` names."""
    module, _, name = target.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def _takes_place(target: Callable[..., object]) -> bool:
    try:
        return "place" in inspect.signature(target).parameters
    except ValueError:  # a class of C code
        return False
