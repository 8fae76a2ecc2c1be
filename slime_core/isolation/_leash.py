"""What ties a worker process down: it dies with the driver, keeps to its memory, and does not multiply.

All of it is set by the worker itself, before it imports its plugin.
"""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import sys
import threading

MOST_FORKS = 256
"""`os.fork` calls of one worker and its children during one call of the plugin."""
TOO_MANY_FORKS = f"more than {MOST_FORKS} forks in one call"
"""What a worker prints that ends itself for this."""
_PR_SET_CHILD_SUBREAPER = 36
_MIB = 1 << 20


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process group when the driver's end of a pipe is closed, whatever it is doing.

    A thread that waits for the end of the pipe, the way of other systems, never gets its turn while the plugin is
    inside C code that keeps the interpreter's lock (`9**9**9`).
    """
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_wait_and_die, args=(lifeline,), name="lifeline", daemon=True).start()


def _wait_and_die(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def limit_memory(memory_mb: int) -> None:
    """Cap what this process can allocate, so that it meets a MemoryError.

    RLIMIT_DATA counts private writable memory; RLIMIT_AS would count what libraries only map or reserve as well.
    """
    for limit in (resource.RLIMIT_DATA, resource.RLIMIT_CORE):
        wanted = memory_mb * _MIB if limit == resource.RLIMIT_DATA else 0
        _, hard = resource.getrlimit(limit)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (value, value))


def keep_descendants() -> None:
    """Become the parent of orphaned descendants, so that none of them gets out of the driver's sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class ForkCount:
    """Counts forks in this process and all that come of it; one too many kills the process group."""

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
