"""Slots: at most so many calls at once, first come first served; serves one event loop after another.

asyncio.Semaphore belongs for good to the first loop in which somebody had to wait.
"""

import asyncio
from collections import deque


class Slots:
    """At most `count` places, each held by one call."""

    def __init__(self, count: int) -> None:
        """All of them free."""
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a place and take it."""
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it got a place in the moment in which it was cancelled
            elif turn in self._waiting:  # else `release` passed over it
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give a place back, to whoever waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
