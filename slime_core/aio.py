"""Helpers for asyncio: gather tasks that fail together, limit a call's time, and limit calls at once.

`asyncio` alone does not cover these cases. `limited` needs no timer for a call that never suspends, and abandons
one that ignores its cancellation. `Slots` is a semaphore that works in successive event loops.

Example:

    await gather_or_cancel(trainer.publish(4, engines), engine.load_weights(channel, 4))
    outcome = await run_while(trainer.watch(), loop.run(checkpoint))
    await cancel_all(tasks)
"""

import asyncio
import types
from collections import deque
from collections.abc import Awaitable, Collection, Coroutine, Generator
from contextlib import suppress
from typing import TypeVar, cast
from weakref import WeakSet

ResultT = TypeVar("ResultT")
_CANCELLED: "WeakSet[asyncio.Task[object]]" = WeakSet()


async def gather_or_cancel(*calls: Coroutine[object, object, ResultT]) -> list[ResultT]:
    """Return the results of all calls, in order. The first error cancels the others, and is raised once they ended."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        if tasks:  # not asyncio.gather, which would cancel them without `cancel`
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = [error for task in tasks if task.done() and (error := task.exception())]
        if errors:
            raise errors[0]
        return [task.result() for task in tasks]
    finally:
        await cancel_all(tasks)


async def run_while(fails: Coroutine[object, object, None], call: Coroutine[object, object, ResultT]) -> ResultT:
    """Await `call`, which is cancelled if `fails` raises first; raises the error of either."""
    task, watching = asyncio.create_task(call), asyncio.create_task(fails)
    try:
        await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            watching.result()
        return await task
    finally:
        await cancel_all((task, watching))


async def cancel_all(tasks: "Collection[asyncio.Task[ResultT] | asyncio.Task[None]]") -> None:
    """Cancel all unfinished tasks and wait until they have ended; their errors are dropped."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        cancel(task)
    if unfinished:
        await asyncio.gather(*unfinished, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it


def cancel(task: "asyncio.Task[ResultT] | asyncio.Task[None]") -> None:
    """Cancel a task and mark the core as the cause; see `cancelled_from_outside`."""
    _CANCELLED.add(task)
    task.cancel()


def cancelled_from_outside() -> bool:
    """Whether the core cancelled this task. A cancellation by its plugin is undone."""
    task = asyncio.current_task()
    if task is None or task in _CANCELLED:
        return True
    while task.cancelling():
        task.uncancel()
    return False


class Cancellation:
    """Cancels the task that created it, and can undo these cancellations."""

    __slots__ = ("_before", "_undone", "count", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"
        self.task = task
        self.count = self._undone = 0
        """How often it cancelled the task."""
        self._before = task.cancelling()

    def cancel(self) -> None:
        """Cancel the task once more."""
        self.count += 1
        self.task.cancel()

    def undo(self) -> bool:
        """Undo these cancellations; returns whether the task had no others."""
        while self._undone < self.count:
            self._undone += 1
            self.task.uncancel()
        return self.count > 0 and self.task.cancelling() <= self._before


T = TypeVar("T")
GRACE_S = 1.0
"""Seconds that a cancelled call has to clean up."""


async def limited(call: Awaitable[T], seconds: float) -> T:
    """Await a call for at most `seconds`, then cancel it and raise TimeoutError."""
    if not isinstance(call, types.CoroutineType):
        async with asyncio.timeout(seconds):
            return await call
    try:
        pending = call.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    limit = _Limit(seconds)
    try:
        return await _drive(call, pending, limit)
    except asyncio.CancelledError as error:
        if limit.undo():
            raise TimeoutError(limit.text) from error
        raise
    finally:
        limit.undo()


class _Limit(Cancellation):
    __slots__ = ("_loop", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds, self._loop = seconds, asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self.cancel)

    def cancel(self) -> None:
        super().cancel()
        self._timer = self._loop.call_later(GRACE_S, self.cancel)

    @property
    def text(self) -> str:
        ignored = f"; it ignored its cancellation for {GRACE_S:g} s and was left behind" if self.count > 1 else ""
        return f"no answer in {self._seconds:g} s{ignored}"

    def undo(self) -> bool:
        self._timer.cancel()
        return super().undo()


@types.coroutine
def _drive(call: Coroutine[object, object, T], pending: object, limit: _Limit) -> Generator[object, object, T]:
    """Continue a coroutine that is suspended on `pending`, as `await` does, until its end or its time limit."""
    while True:
        try:
            try:
                given = yield pending
            except BaseException as error:
                if limit.count > 1:
                    with suppress(RuntimeError):  # it ignores this too
                        call.close()
                    raise
                pending = call.throw(error)
            else:
                pending = call.send(given)
        except StopIteration as end:
            return cast(T, end.value)


class Slots:
    """A fair semaphore with `count` slots that works in successive event loops."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        """Wait for a free slot."""
        await self.acquire()

    async def __aexit__(self, *exc: object) -> None:
        """Free it."""
        self.release()

    async def acquire(self) -> None:
        """Wait for a free slot."""
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it got a place just as it was cancelled
            elif turn in self._waiting:  # else `release` passed over it
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Free a slot; the longest waiting call gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
