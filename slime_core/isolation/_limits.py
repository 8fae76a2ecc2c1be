"""Limits of a worker process, set before it imports its plugin: on its memory, and on how often it forks."""

import mmap
import os
import resource
import signal

MOST_FORKS = 256
"""`os.fork` calls of one worker and its children during one call of the plugin."""
TOO_MANY_FORKS = f"more than {MOST_FORKS} forks in one call"
"""What a worker prints before it ends itself for this."""
_MIB = 1 << 20


def limit_memory(memory_mb: int) -> None:
    """Cap what this process can allocate, so that it meets a MemoryError.

    RLIMIT_DATA counts private writable memory; RLIMIT_AS would count what libraries only map or reserve as well.
    """
    for limit in (resource.RLIMIT_DATA, resource.RLIMIT_CORE):
        wanted = memory_mb * _MIB if limit == resource.RLIMIT_DATA else 0
        _, hard = resource.getrlimit(limit)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (value, value))


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
