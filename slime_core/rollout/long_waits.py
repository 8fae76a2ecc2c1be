"""LongWaits: says what a rollout waits for when no sample has ended for long, and again after twice as long.

Example:

    with LongWaits(scheduler.runner.waiting, display.message):      # on a running loop
        await scheduler.collect(...)
"""

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from slime_core.rollout.waiting import Waiting

FIRST_S = 25.0
"""Seconds without the end of a sample after which it is said: within half a minute."""
LOOK_S = 1.0
"""Seconds between two looks."""
MOST_NAMED = 4
"""Samples that are named, the oldest first."""

log = logging.getLogger(__name__)


class LongWaits:
    """Looks at the samples in flight, on the event loop."""

    def __init__(self, waiting: Waiting, tell: Callable[[str], None], first_s: float = FIRST_S) -> None:
        """Look at nothing yet; `tell` is given a line of text."""
        self._waiting, self._tell, self._first_s = waiting, tell, first_s
        self._ended, self._since, self._next_s = -1, 0.0, first_s
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Look from now on."""
        self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        waiting, now = self._waiting, time.monotonic()
        if waiting.ended != self._ended or not waiting.in_flight:
            self._ended, self._since, self._next_s = waiting.ended, now, self._first_s
        elif now - self._since >= self._next_s:
            self._next_s *= 2
            text = self._text(now - self._since)
            log.info(text)
            self._tell(text)
        self._timer = asyncio.get_running_loop().call_later(min(LOOK_S, self._first_s / 4), self._look)

    def _text(self, seconds: float) -> str:
        waiting = self._waiting
        named = waiting.oldest(MOST_NAMED)
        more = f"; and {count} more" if (count := waiting.in_flight - len(named)) > 0 else ""
        return f"no sample ended for {seconds:.0f} s; waiting for {waiting.text}: {'; '.join(named)}{more}"
