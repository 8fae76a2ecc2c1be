"""ProgressCount: shows progress to a known total, on one terminal line or in occasional log lines.

progress = ProgressCount(4000)
progress.show(1200)                  # "1200 of 4000"
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from slime_core.secrets import drawable

EVERY_S = 10.0
"""Seconds between lines where there is no terminal."""


class ProgressCount:
    """Progress to a total."""

    def __init__(self, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Start at 0; `stream` defaults to standard error, `clock` gives seconds."""
        self._total, self._stream, self._clock = total, drawable(stream or sys.stderr), clock
        self._last, self._open = clock(), False

    def show(self, done: int) -> None:
        """Print the count, if enough time has passed since it was printed last."""
        if self._stream.isatty():
            print(f"\r{done} of {self._total}", end="", file=self._stream, flush=True)
            self._open = True
        elif done < self._total and self._clock() - self._last >= EVERY_S:
            print(f"{done} of {self._total}", file=self._stream, flush=True)
            self._last = self._clock()

    def end(self) -> None:
        """End the line of the count, so that later output starts on a new line."""
        if self._open:
            print(file=self._stream, flush=True)
            self._open = False
