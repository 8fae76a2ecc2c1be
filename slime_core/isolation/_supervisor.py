"""The supervisor of one command: a small process between command and driver, which ends when either does.

It adopts every process that the command leaves behind, so that none escapes it, and kills them all when the command
has ended, is over a limit, or the driver is gone. It reports on a pipe how the command ended.
"""

import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from slime_core.processes.leash import die_with_parent, keep_descendants
from slime_core.processes.tree import descendants, end_descendants, resident_mb

TICK_S = 0.05
"""Seconds between two looks at a command."""
WEIGHING_S = 0.25
"""Seconds between two additions of what its processes use."""
LAST_S = 5.0
"""Seconds after which it no longer waits for a process that cannot be killed."""


def main(lifeline: int, report: int, order: str) -> None:
    """Run the command of an order, as JSON, and report its end, as JSON."""
    keep_descendants()
    asked = json.loads(order)
    try:
        child = _started(asked["argv"], asked["env"], asked["cwd"], (lifeline, report))
        ended = _watched(child, lifeline, asked["memory_mb"], asked["most_processes"])
    except OSError as error:
        ended = {"failed": f"{error.strerror}: {error.filename or asked['argv'][0]}"}
    _end_all()
    with suppress(BrokenPipeError):
        os.write(report, json.dumps(ended).encode())


def _started(argv: Sequence[str], env: Mapping[str, str], cwd: str, ours: Sequence[int]) -> int:
    """Start the command in a session of its own; returns its process id.

    Raises:
        OSError: there is no such command, or no such folder.
    """
    failed, failure = os.pipe()
    child = os.fork()
    if child:
        os.close(failure)
        with os.fdopen(failed, "rb") as told:
            if said := told.read():
                number, name = json.loads(said)
                raise OSError(number, os.strerror(number), name)
        return child
    try:
        os.setsid()
        die_with_parent()
        for descriptor in (*ours, failed):
            os.close(descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(failure, json.dumps([error.errno, os.fsdecode(error.filename or argv[0])]).encode())
    finally:
        os._exit(127)


def _watched(child: int, lifeline: int, memory_mb: int, most_processes: int) -> dict[str, int | str]:
    """Wait until the command ends, the driver is gone, or a limit is passed; says how."""
    next_weighing = 0.0
    watched = [lifeline, os.pidfd_open(child)] if hasattr(os, "pidfd_open") else [lifeline]
    while True:
        if code := _exit_code(child):
            return {"code": code[0]}
        if lifeline in select.select(watched, [], [], TICK_S)[0]:
            return {"over": "killed", "detail": "the driver let go of it"}
        if time.monotonic() >= next_weighing:
            next_weighing = time.monotonic() + WEIGHING_S
            processes = descendants(os.getpid())
            used = sum(map(resident_mb, processes))
            if len(processes) > most_processes:
                return {"over": "processes", "detail": f"it has more than {most_processes} processes"}
            if used > memory_mb:
                return {"over": "memory", "detail": f"its processes use {used:.0f} MiB of {memory_mb}"}


def _exit_code(child: int) -> tuple[int] | None:
    """How the command ended, if it did; orphans that ended are reaped on the way."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return (os.waitstatus_to_exitcode(status),)
        if not pid:
            return None


def _end_all() -> None:
    """Kill all descendants, again until none is left."""
    end = time.monotonic() + LAST_S
    while time.monotonic() < end:
        end_descendants(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(TICK_S / 10)
