"""The loop of one worker process: build an object, then answer method calls that come down a pipe.

It ignores Ctrl-C (the driver decides), writes its output to its own log, and ends when its driver is gone.
"""

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from slime_core.errors import SlimeError

ORPHAN_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call."""

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


def serve(
    pipe: Connection,
    driver_pid: int,
    log: Path,
    target: str,
    rank: int,
    size: int,
    arguments: Mapping[str, object],
) -> None:
    """Run one worker until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _redirect_output(log)
    threading.Thread(target=_die_with, args=(driver_pid,), daemon=True).start()
    worker: object = None

    def build() -> None:
        nonlocal worker
        worker = load_target(target)(rank, size, **arguments)

    pipe.send(_answer(build))
    while True:
        try:
            method, given = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_answer(lambda: getattr(worker, method)(*given)))  # noqa: B023  # called before the next turn


def _answer(call: Callable[[], object]) -> Reply:
    try:
        return Reply(call())
    except SlimeError as error:
        traceback.print_exc()
        return Reply(error=error)
    except Exception:
        traceback.print_exc()
        return Reply(traceback=traceback.format_exc())


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _die_with(driver_pid: int) -> None:
    """End this process when the driver is gone: a worker deep in a computation never reads its pipe's end."""
    while True:
        try:
            os.kill(driver_pid, 0)
        except ProcessLookupError:
            os._exit(1)
        time.sleep(ORPHAN_POLL_S)
