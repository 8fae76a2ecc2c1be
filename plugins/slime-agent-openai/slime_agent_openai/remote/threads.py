"""Threads: calls that block, each in a thread of its own, at most so many at once; the event loop goes on.

A thread cannot be cancelled: one whose caller has gone keeps its place until it has ended. It keeps no process alive.

Example:

    threads = Threads(100)
    raw = await threads.call(partial(client.get_object, Bucket="b", Key="k"))
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

ResultT = TypeVar("ResultT")


class Threads:
    """One for what shares a number of connections."""

    def __init__(self, most: int) -> None:
        """Nothing runs; `most` may, at once."""
        self._places = asyncio.Semaphore(most)
        self._running: set[asyncio.Future[None]] = set()

    async def call(self, act: Callable[[], ResultT]) -> ResultT:
        """What it returns, or raises."""
        return await asyncio.shield(await self.begin(act))

    async def begin(self, act: Callable[[], ResultT]) -> "asyncio.Future[ResultT]":
        """Wait for a place, and begin; whoever waits for the end should shield it."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[ResultT] = loop.create_future()
        ended.add_done_callback(_seen)
        gone: asyncio.Future[None] = loop.create_future()
        self._running.add(gone)

        def end(settle: Callable[[], None]) -> None:
            self._places.release()
            self._running.discard(gone)
            gone.set_result(None)
            if not ended.done():
                settle()

        def run() -> None:
            try:
                made = act()
            except BaseException as error:
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                _tell(loop, lambda: end(lambda: ended.set_exception(failure)))
            else:
                _tell(loop, lambda: end(lambda: ended.set_result(made)))

        threading.Thread(target=run, name="agent-remote", daemon=True).start()
        return ended

    async def wait(self, timeout_s: float) -> None:
        """Wait until all have ended, but no longer than that."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(act)


def _seen(ended: "asyncio.Future[ResultT]") -> None:
    """Whoever asked may have gone: its error is not lost, it is nobody's."""
    if not ended.cancelled():
        ended.exception()
