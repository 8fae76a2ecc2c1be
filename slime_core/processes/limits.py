"""Limits on a process and its children: memory, number of forks, and end of life together with the driver.

A process sets its own limits before it runs code of a plugin or a model. A supervisor runs one command: it adopts
all processes that the command leaves, and kills them at its end. Child processes are found in /proc, so on Linux
only.
"""

import ctypes
import fcntl
import json
import mmap
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Memory limit of a worker process, which it sets itself before it runs code of a plugin or a model.

_MIB = 1 << 20


def limit_memory(memory_mb: int) -> None:
    """Cap what this process can allocate, so that it meets a MemoryError.

    RLIMIT_DATA counts private writable memory; RLIMIT_AS would count what libraries only map or reserve as well.
    A system that refuses the limit (macOS) leaves the process without it.
    """
    for limit in (resource.RLIMIT_DATA, resource.RLIMIT_CORE):
        wanted = memory_mb * _MIB if limit == resource.RLIMIT_DATA else 0
        _, hard = resource.getrlimit(limit)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


# What ties a process to its driver: it dies with it, and keeps what it has started within sight.

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process group when the driver's end of a pipe is closed, whatever it is doing.

    A thread that waits for the end of the pipe, the way of other systems, never gets its turn while something is
    inside C code that keeps the interpreter's lock (`9**9**9`).
    """
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # the driver died before the kernel was asked
            os.killpg(0, signal.SIGKILL)
    else:
        threading.Thread(target=_wait_and_die, args=(lifeline,), name="lifeline", daemon=True).start()


def _wait_and_die(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def keep_descendants() -> None:
    """Become the parent of orphaned descendants, so that none of them gets out of the driver's sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# The processes that a process has started, theirs included, as Linux's /proc knows them; elsewhere none are seen.

_PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_SEEN = 1_000
"""Processes after which looking for more is given up."""


def descendants(pid: int) -> list[int]:
    """Running descendants of a process, parents before children."""
    found: list[int] = []
    unseen = [pid]
    while unseen and len(found) < MOST_SEEN:
        of_one = children(unseen.pop())
        found += of_one
        unseen += of_one
    return found


def end_tree(pid: int) -> None:
    """Kill a process that leads a group, its group, and all that it has started; what it starts meanwhile escapes."""
    others = descendants(pid)  # before it dies: they are not to be found afterwards
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for each in (pid, *others):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def end_descendants(pid: int) -> None:
    """Kill what a process has started, as far as it can still be found."""
    for each in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)
    return 0.0


def is_stopped(pid: int) -> bool:
    """Whether a signal (SIGSTOP, a terminal's Ctrl-Z) or a debugger has stopped a process."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def shared_mb(pid: int) -> float:
    """Resident memory of a process in MiB that is shared and of no file, which no limit of its own counts."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("RssShmem:")) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Children of a process, those that have ended and are not reaped yet included."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


# Limit of a worker process on how often it forks, set before it imports its plugin.

MOST_FORKS = 256
"""`os.fork` calls of one worker and its children during one call of the plugin."""
TOO_MANY_FORKS = f"more than {MOST_FORKS} forks in one call"
"""What a worker prints before it ends itself for this."""


class ForkCount:
    """Counts forks in this process and its descendants; one too many kills the process group."""

    def __init__(self) -> None:
        """Count from 0, in memory that forks share."""
        self._count = mmap.mmap(-1, 8)
        os.register_at_fork(before=self._one_more)

    def start(self) -> None:
        """A new call begins."""
        self._count[:8] = bytes(8)

    def _one_more(self) -> None:
        forks = int.from_bytes(self._count[:8], "little") + 1
        self._count[:8] = forks.to_bytes(8, "little")
        if forks > MOST_FORKS:
            os.write(2, TOO_MANY_FORKS.encode())
            os.killpg(0, signal.SIGKILL)


# The supervisor of one command: a small process between command and driver, which ends when either does.

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
