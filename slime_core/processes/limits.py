"""Memory limits, process trees from /proc, and limits on the processes that a worker starts.

Without /proc, child processes are not found.
"""

import ctypes
import mmap
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
MOST_SEEN = 1_000
"""Number of descendants at which a search stops."""


def limit_memory(memory_mb: int) -> None:
    """Limit the private writable memory of this process; a larger allocation raises MemoryError.

    RLIMIT_AS would also count memory that libraries only map or reserve. Has no effect if the system refuses (macOS).
    """
    for limit, wanted in ((resource.RLIMIT_DATA, memory_mb << 20), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


def own_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_descendants() -> None:
    """Adopt orphaned descendants, so that a later search from this process finds them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the children of a process, including zombies."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, parents before children."""
    found: list[int] = []
    unseen = [pid]
    while unseen and len(found) < MOST_SEEN:
        of_one = children(unseen.pop())
        found += of_one
        unseen += of_one
    return found


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process that can be found."""
    _kill(descendants(pid))


def end_tree(pid: int) -> None:
    """Kill a process group, its leader, and the leader's descendants."""
    others = descendants(pid)  # before the leader dies: later they cannot be found
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _kill([pid, *others])


def _kill(pids: list[int]) -> None:
    for each in pids:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def private_mb(pid: int) -> float:
    """Return resident MiB of anonymous and shared memory; 0 if the process has ended."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))) / 1024
    return 0.0


MOST_FORKS = 256
"""Most `os.fork` calls of a worker and its children in one call."""
TOO_MANY_FORKS = f"more than {MOST_FORKS} forks in one call"
"""Printed by a worker that kills its process group for too many forks."""


class ForkCount:
    """Counts forks of this process and its descendants; kills the process group after `MOST_FORKS`."""

    def __init__(self) -> None:
        self._count = mmap.mmap(-1, 8)  # shared with forks
        os.register_at_fork(before=self._count_one)

    def restart(self) -> None:
        """Reset the count for the next call."""
        self._count[:8] = bytes(8)

    def _count_one(self) -> None:
        forks = int.from_bytes(self._count[:8], "little") + 1
        self._count[:8] = forks.to_bytes(8, "little")
        if forks > MOST_FORKS:
            os.write(2, TOO_MANY_FORKS.encode())
            os.killpg(0, signal.SIGKILL)
