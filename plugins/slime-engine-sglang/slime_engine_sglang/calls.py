"""Calls: the running requests of a server. Gate: blocks new requests.

If a caller is cancelled, its request is aborted by id repeatedly, since the server ignores an id that has not arrived
yet. So each call is a separate task, which is never cancelled and ends with the server's response.

Example:

    calls = Calls(abort)                            # abort(rid): aborts one request on the server, or all (None)
    await calls.wait_open()                         # waits while calls are blocked
    reply = await calls.result_of(rid, server.ask("/generate", body))
    await calls.abort_all()
    async with calls.gate.exclusive():              # no request starts, and no `shared` call is running
        ...
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from slime_core.errors import SlimeError


class Gate:
    """A gate that is closed while at least one caller holds it closed."""

    def __init__(self) -> None:
        self._closed_count = self._shared_count = 0
        self._changed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed_count > 0

    async def wait_open(self) -> None:
        while self._closed_count:
            await self._changed.wait()

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._closed_count += 1
        try:
            yield
        finally:
            self._closed_count -= 1
            self._notify()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Close the gate and wait until no `shared` call is running."""
        with self.closed():
            while self._shared_count:
                await self._changed.wait()
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Context for calls that `exclusive` waits for, such as calls for one version. Await `wait_open` first."""
        self._shared_count += 1
        try:
            yield
        finally:
            self._shared_count -= 1
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


ResultT = TypeVar("ResultT")

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.5  # Seconds between two aborts of one request: the first pause and the longest


class Calls:
    """The running requests of one server."""

    def __init__(self, abort: Callable[[str | None], Coroutine[None, None, None]], common: Gate | None = None) -> None:
        """`abort` aborts one id (None: all) on the server; `common` is a gate that several engines share."""
        self._abort = abort
        self._running: dict[str, asyncio.Task[object]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.gate = Gate()  # Blocks new calls
        self._common = common or Gate()
        self.aborts = 0  # Number of `abort_all` calls; a request that waited in `wait_open` meanwhile is aborted too

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    @property
    def is_blocked(self) -> bool:
        return self.gate.is_closed or self._common.is_closed

    async def wait_open(self) -> None:
        while self.is_blocked:
            await self.gate.wait_open()
            await self._common.wait_open()

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Block new requests and wait for `shared` calls, which need the current weights; other calls continue."""
        return self.gate.exclusive()

    async def result_of(self, rid: str, call: Coroutine[None, None, ResultT]) -> ResultT:
        """The result of a call. If the waiting task is cancelled, aborts the call on the server."""
        ended = asyncio.get_running_loop().create_future()

        def on_done() -> None:
            if not ended.done():
                ended.set_result(None)

        task = self._start(rid, call, on_done)  # like asyncio.shield, but faster: every request runs this
        try:
            await ended
        except asyncio.CancelledError:
            self.abandon(rid)
            raise
        return task.result()

    async def newest_events(self, rid: str, events: AsyncGenerator[ResultT, None]) -> AsyncGenerator[ResultT, None]:
        """Yield the newest event of a call, skipping older events. The caller must call `abandon` afterwards."""
        newest: list[ResultT] = []
        arrived = asyncio.Event()

        async def drain() -> None:
            try:
                async for event in events:
                    newest[:] = [event]
                    arrived.set()
            finally:
                arrived.set()

        task = self._start(rid, drain())
        while newest or not task.done():
            if newest:
                yield newest.pop()
            else:
                arrived.clear()
                await arrived.wait()
        await task

    def abandon(self, rid: str) -> None:
        """Abandon a call whose caller has left: abort it repeatedly until it ends."""
        task = self._running.get(rid)
        if task is not None and not task.done():
            self.in_background(self._abort_left(task, rid))

    def abort_once(self, rid: str) -> None:
        """Abort a call once on the server, which may still run it although it has ended here."""
        self.in_background(self._abort(rid))

    async def wait_idle(self) -> None:
        while self._running:
            await asyncio.wait(self._running.values())

    async def abort_all(self) -> None:
        """Abort until all running and waiting requests have ended. Later requests are not affected."""
        self.aborts += 1
        with self.gate.closed(), self._common.closed():
            await self._abort_until_ended(self._running.values(), None)

    def in_background(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)

        def on_ended(ended: "asyncio.Task[None]") -> None:
            self._background.discard(ended)
            _retrieve_error(ended)

        task.add_done_callback(on_ended)
        return task

    async def close(self) -> None:
        await asyncio.gather(*self._running.values(), *self._background, return_exceptions=True)

    def _start(
        self, rid: str, call: Coroutine[None, None, ResultT], on_done: Callable[[], None] = lambda: None
    ) -> "asyncio.Task[ResultT]":
        task = asyncio.create_task(call)
        self._running[rid] = task

        def on_ended(ended: "asyncio.Task[ResultT]") -> None:
            self._running.pop(rid, None)
            _retrieve_error(ended)
            on_done()

        task.add_done_callback(on_ended)
        return task

    async def _abort_left(self, task: "asyncio.Task[object]", rid: str) -> None:
        await asyncio.wait([task], timeout=FIRST_PAUSE_S)  # a stream whose last token was read ends by itself
        await self._abort_until_ended([task], rid)

    async def _abort_until_ended(self, tasks: "Iterable[asyncio.Task[object]]", rid: str | None) -> None:
        pause, left = FIRST_PAUSE_S, {task for task in tasks if not task.done()}
        while left:
            with suppress(SlimeError):  # the server is gone, so the calls end by themselves
                await self._abort(rid)
            _, left = await asyncio.wait(left, timeout=pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _retrieve_error(ended: "asyncio.Task[ResultT]") -> None:
    """Retrieve the error of a task that may have no waiter: asyncio logs errors that are never retrieved."""
    if not ended.cancelled():
        ended.exception()
