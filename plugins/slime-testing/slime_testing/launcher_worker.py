"""Worker for the contract of launchers: it reports its rank and process, and fails on demand.

Example:

    WorkerGroupSpec("kit", 2, "slime_testing.launcher_worker:Worker", {"start": 10})
"""

import os
import subprocess
import threading
import time
from pathlib import Path

from slime_core.roles import Place


class Worker:
    """One worker; each method answers one call."""

    def __init__(
        self, rank: int, size: int, *, start: int, marker_folder: Path | None = None, place: Place | None = None
    ) -> None:
        """Store the arguments; `close` writes a file to `marker_folder`.

        Raises:
            ValueError: `start` is negative.
        """
        if start < 0:
            raise ValueError(f"worker {rank} cannot start at {start}")
        self._rank, self._size, self._count = rank, size, start
        self._marker_folder, self._place = marker_folder, place

    def who(self) -> tuple[int, int, int]:
        """Rank, size and process id."""
        return self._rank, self._size, os.getpid()

    def add(self, number: int) -> int:
        """Add a number to this worker's sum; returns the sum."""
        self._count += number
        return self._count

    def fail(self, text: str) -> None:
        """Raise an error with this text.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(text)

    def die(self, code: int) -> None:
        """End the process at once."""
        os._exit(code)

    def sleep(self, seconds: float) -> float:
        """Return after some seconds."""
        time.sleep(seconds)
        return seconds

    def die_later(self, seconds: float) -> None:
        """End the process after this call has returned."""
        threading.Timer(seconds, os._exit, (3,)).start()

    def where(self) -> Place | None:
        """The place that the launcher passed."""
        return self._place

    def variable(self, name: str) -> str | None:
        """Value of an environment variable."""
        return os.environ.get(name)

    def folder(self) -> str:
        """The working directory."""
        return str(Path.cwd())

    def spawn(self) -> list[int]:
        """Start a child process, like an engine with a server; returns the pids of this process and the child."""
        return [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]

    def double(self, data: bytes) -> bytes:
        """The data, twice."""
        return data * 2

    def say(self, text: str) -> None:
        """Write to standard output and standard error."""
        print(text, flush=True)  # noqa: T201  # goes to the worker's log
        os.write(2, text.encode() + b"\n")

    def close(self) -> None:
        """Write a file, by which the check detects the call."""
        if self._marker_folder is not None:
            (self._marker_folder / f"closed-{self._rank}").touch()
