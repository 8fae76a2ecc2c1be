"""Limit of a worker process on how often it forks, set before it imports its plugin."""

import mmap
import os
import signal

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
