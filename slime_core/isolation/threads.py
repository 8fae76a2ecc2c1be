"""ThreadPool: daemon threads for calls that block on I/O. A thread is left behind at its time limit, and replaced.

The standard library's executor waits for its threads at exit, and counts one that hangs among its workers for ever.
"""

import asyncio
import itertools
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from slime_core.errors import PluginError, said_by
from slime_core.isolation.slots import Slots
from slime_core.stats import CallStats

_Work: TypeAlias = "tuple[Callable[[], object], _Answer]"


@dataclass(slots=True)
class _Answer:
    """The future of one call, told from its thread how the call ended."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]

    def give(self, value: object, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


class ThreadPool:
    """At most `size` threads, not counting those left behind."""

    def __init__(self, size: int, name: str) -> None:
        """No thread is started yet."""
        self._slots = Slots(size)
        self._idle: list[_Thread] = []
        self._names = (f"{name} {number}" for number in itertools.count())

    async def call(self, function: Callable[[], object], timeout_s: float, calls: CallStats) -> object:
        """Run a function in a free thread; waits for one without a limit, and does not count that in `calls`.

        Raises:
            TimeoutError: it took longer than `timeout_s`, and runs on, alone.
        """
        await self._slots.acquire()
        thread = self._idle.pop() if self._idle else _Thread(next(self._names))
        loop = asyncio.get_running_loop()
        answer = _Answer(loop, loop.create_future())
        began = perf_counter()
        try:
            thread.work.put((function, answer))
            async with asyncio.timeout(timeout_s):
                return await answer.future
        finally:
            calls.seconds.append(perf_counter() - began)
            # Cancelled, or done without this task: a thread is free only when its function has ended.
            if answer.future.done() and not answer.future.cancelled():
                self._idle.append(thread)
            else:
                thread.work.put(None)
            self._slots.release()

    def close(self) -> None:
        """Let the idle threads end."""
        while self._idle:
            self._idle.pop().work.put(None)


class _Thread:
    """A thread and what it is to do; None ends it."""

    def __init__(self, name: str) -> None:
        self.work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(self.work,), name=name, daemon=True).start()

    @staticmethod
    def _run(work: "queue.SimpleQueue[_Work | None]") -> None:
        while (given := work.get()) is not None:
            function, answer = given
            try:
                value = function()
            except Exception as error:
                answer.give(None, RuntimeError(f"it raised {error!r}") if isinstance(error, StopIteration) else error)
            except BaseException as error:
                answer.give(
                    None, PluginError(f"it raised {type(error).__name__}: {said_by(error)}")
                )  # ends a call, not the run
            else:
                answer.give(value, None)
            del given, function, answer
