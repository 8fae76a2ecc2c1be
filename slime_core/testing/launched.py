"""What the contract of launchers has launched: a worker that says who it is, and fails as it is told.

Example:

    WorkerGroupSpec("kit", 2, "slime_core.testing.launched:Worker", {"start": 10})
"""

import os
import time


class Worker:
    """One worker; every method answers one call."""

    def __init__(self, rank: int, size: int, *, start: int) -> None:
        """Take the place among the workers; negative `start` fails.

        Raises:
            ValueError: `start` is negative.
        """
        if start < 0:
            raise ValueError(f"worker {rank} cannot start at {start}")
        self._rank, self._size, self._count = rank, size, start

    def who(self) -> tuple[int, int, int]:
        """Rank, size and process."""
        return self._rank, self._size, os.getpid()

    def add(self, number: int) -> int:
        """Add to what this worker has; returns the sum so far."""
        self._count += number
        return self._count

    def fail(self, text: str) -> None:
        """Raise.

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
