"""Turns: leaves the event loop to others after two milliseconds of grading in one of its turns.

Example:

    async with turns:       # at once, or in a later turn of the loop
        found = compare(gold, answer)

Of a thousand answers that come in together, asyncio would have all graded before it looks at anything else again: that
took 210 ms of a processor for hostile ones, and takes 12 ms like this, 5 of them to start a thousand tasks.
"""

import asyncio
import time
from collections import deque

LIMIT_S = 0.002
"""Seconds of grading in one turn; the verdict that passes them is the turn's last."""
WOKEN = 40
"""Waiting calls that a turn goes on with, at most: about what the limit leaves time for."""


class Turns:
    """Counts the seconds that are spent in a turn; the body may not await."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent = self._began = 0.0
        self._is_due = False

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._spent, self._is_due = loop, 0.0, False
            self._waiting.clear()
        while self._spent >= LIMIT_S:
            place = loop.create_future()
            self._waiting.append(place)
            await place
        self._renew_later(loop)
        self._began = time.perf_counter()

    async def __aexit__(self, *raised: object) -> None:
        self._spent += time.perf_counter() - self._began

    def _renew_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        """A new turn: the loop has been through everything that was ready when the last one began."""
        self._spent, self._is_due = 0.0, False
        for _ in range(min(WOKEN, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
        if self._waiting:
            self._renew_later(loop)
