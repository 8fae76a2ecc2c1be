"""The loop of one worker process: build an object, then answer method calls that come down a pipe.

It leaves the driver's process group, so that a Ctrl-C or a signal to all of a job reaches the driver alone, which
decides. It writes its output to its own log, and ends when its driver is gone.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from slime_core.errors import SlimeError
from slime_core.secrets import REDACTOR, redact_output

DRIVER_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})
"""What asks a run to stop: for the driver alone to answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call."""

    number: int
    """Which call; 0 is the construction."""
    value: object = None
    """What the method returned."""
    error: SlimeError | None = None
    """An error of ours, raised again in the driver as it is."""
    traceback: str = ""
    """Text of any other exception."""


def load_target(target: str) -> Callable[..., object]:
    """The class that `package.module:Class` names."""
    module, _, name = target.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def serve(pipe: Connection, log: Path, target: str, rank: int, size: int, arguments: Mapping[str, object]) -> None:
    """Run one worker until it is sent None, or its driver is gone."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DRIVER_SIGNALS)
    _redirect_output(log)
    redact_output()
    threading.Thread(target=_die_with_the_driver, daemon=True).start()
    worker: object = None

    def build() -> None:
        nonlocal worker
        worker = load_target(target)(rank, size, **arguments)

    _answer(pipe, 0, build)
    while (asked := _next(pipe)) is not None:
        number, method, given = asked
        _answer(pipe, number, lambda: getattr(worker, method)(*given))  # noqa: B023  # called before the next turn


def _next(pipe: Connection) -> tuple[int, str, tuple[object, ...]] | None:
    try:
        asked: tuple[int, str, tuple[object, ...]] | None = pipe.recv()
    except (EOFError, OSError):
        return None
    return asked


def _answer(pipe: Connection, number: int, call: Callable[[], object]) -> None:
    """Send what a call returns or raises; what cannot be pickled is an error of the call's."""
    try:
        pipe.send(Reply(number, call()))
    except SlimeError as error:
        traceback.print_exc()
        pipe.send(Reply(number, error=error))
    except Exception:
        traceback.print_exc()
        pipe.send(Reply(number, traceback=REDACTOR.redact(traceback.format_exc())))


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _die_with_the_driver() -> None:
    """End this process when the driver is gone: a worker deep in a computation never reads its pipe's end."""
    driver = multiprocessing.parent_process()
    assert driver is not None, "a worker is a child"
    driver.join()
    os._exit(1)
