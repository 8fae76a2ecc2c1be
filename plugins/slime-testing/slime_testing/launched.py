"""The worker that the contract of launchers starts: it says who it is, and fails on demand.

Example:

    WorkerGroupSpec("kit", 2, "slime_testing.launched:Worker", {"start": 10})
"""

import os
import subprocess
import threading
import time
from pathlib import Path

from slime_core.roles import Place


class Worker:
    """One worker; every method answers one call."""

    def __init__(
        self, rank: int, size: int, *, start: int, told: Path | None = None, place: Place | None = None
    ) -> None:
        """Take a place among the workers; a negative `start` fails, and the file `told` is written at `close`.

        Raises:
            ValueError: `start` is negative.
        """
        if start < 0:
            raise ValueError(f"worker {rank} cannot start at {start}")
        self._rank, self._size, self._count = rank, size, start
        self._told, self._place = told, place

    def who(self) -> tuple[int, int, int]:
        """Rank, size and process."""
        return self._rank, self._size, os.getpid()

    def add(self, number: int) -> int:
        """Add to what this worker has; returns the sum so far."""
        self._count += number
        return self._count

    def fail(self, text: str) -> None:
        """Raise an error with this text.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(text)

    def die(self, code: int) -> None:
        """End the process without a word."""
        os._exit(code)

    def sleep(self, seconds: float) -> float:
        """Answer late."""
        time.sleep(seconds)
        return seconds

    def die_later(self, seconds: float) -> None:
        """End the process after the answer, when nobody asks it for anything."""
        threading.Timer(seconds, os._exit, (3,)).start()

    def where(self) -> Place | None:
        """The place that the launcher gave it."""
        return self._place

    def variable(self, name: str) -> str | None:
        """A variable of its environment."""
        return os.environ.get(name)

    def folder(self) -> str:
        """Its working directory."""
        return str(Path.cwd())

    def spawn(self) -> list[int]:
        """Its own process and that of a child, as a server of some engine may be."""
        return [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]

    def double(self, data: bytes) -> bytes:
        """Answer with twice as much."""
        return data * 2

    def say(self, text: str) -> None:
        """Print, and write to the descriptor of errors."""
        print(text, flush=True)  # noqa: T201  # what the log is for
        os.write(2, text.encode() + b"\n")

    def close(self) -> None:
        """Write `told`, so that the check sees that it was called."""
        if self._told is not None:
            (self._told / f"closed-{self._rank}").touch()
