"""Calls: the running requests of a server. Gate: blocks new requests.

If a caller is cancelled, its request is aborted by id repeatedly, since the server ignores an id that has not arrived
yet. So each call is a separate task, which is never cancelled and ends with the server's response.

Example:

    calls = Calls(abort)                            # abort(rid): aborts one request on the server, or all (None)
    await calls.turn()                              # waits while calls are held
    reply = await calls.finished(rid, server.ask("/generate", body))
    await calls.abort_all()
    async with calls.gate.held():                   # no request starts, and no `whole` call is running
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
        self._holds = self._wholes = 0
        self._changed = asyncio.Event()

    @property
    def is_shut(self) -> bool:
        return self._holds > 0

    async def turn(self) -> None:
        while self._holds:
            await self._changed.wait()

    @contextmanager
    def shut(self) -> Iterator[None]:
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._change()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Close the gate and wait until no `whole` call is running."""
        with self.shut():
            while self._wholes:
                await self._changed.wait()
            yield

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Context for calls that `held` waits for, such as calls that need the same weights. Enter it after `turn`."""
        self._wholes += 1
        try:
            yield
        finally:
            self._wholes -= 1
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


ResultT = TypeVar("ResultT")

FIRST_S = 0.005
LONGEST_S = 0.5  # Seconds between two aborts of one request: the first pause and the longest


class Calls:
    """The running requests of one server."""

    def __init__(self, abort: Callable[[str | None], Coroutine[None, None, None]], common: Gate | None = None) -> None:
        """`abort` aborts one id (None: all) on the server; `common` is a gate that several engines share."""
        self._abort = abort
        self._under_way: dict[str, asyncio.Task[object]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.gate = Gate()  # Blocks new calls
        self._common = common or Gate()
        self.aborts = 0  # Number of `abort_all` calls; a request that waited in `turn` meanwhile is aborted too

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    @property
    def is_held(self) -> bool:
        return self.gate.is_shut or self._common.is_shut

    async def turn(self) -> None:
        while self.is_held:
            await self.gate.turn()
            await self._common.turn()

    def held(self) -> AbstractAsyncContextManager[None]:
        """Block new requests and wait for `whole` calls, which need the current weights; other calls continue."""
        return self.gate.held()

    async def finished(self, rid: str, call: Coroutine[None, None, ResultT]) -> ResultT:
        """The result of a call. If the waiting task is cancelled, aborts the call on the server."""
        ended = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        task = self._begun(rid, call, tell)  # like asyncio.shield, but faster: every request runs this
        try:
            await ended
        except asyncio.CancelledError:
            self.leave(rid)
            raise
        return task.result()

    async def followed(self, rid: str, events: AsyncGenerator[ResultT, None]) -> AsyncGenerator[ResultT, None]:
        """Yield the newest event of a call, skipping older events. The caller must call `leave` afterwards."""
        newest: list[ResultT] = []
        came = asyncio.Event()

        async def drain() -> None:
            try:
                async for event in events:
                    newest[:] = [event]
                    came.set()
            finally:
                came.set()

        task = self._begun(rid, drain())
        while newest or not task.done():
            if newest:
                yield newest.pop()
            else:
                came.clear()
                await came.wait()
        await task

    def leave(self, rid: str) -> None:
        """Abandon a call whose caller has left: abort it repeatedly until it ends."""
        task = self._under_way.get(rid)
        if task is not None and not task.done():
            self.behind(self._left(task, rid))

    def forget(self, rid: str) -> None:
        """Abort a call once on the server, which may still run it although it has ended here."""
        self.behind(self._abort(rid))

    async def drained(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way.values())

    async def abort_all(self) -> None:
        """Abort until all running and waiting requests have ended. Later requests are not affected."""
        self.aborts += 1
        with self.gate.shut(), self._common.shut():
            await self._ended(self._under_way.values(), None)

    def behind(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)

        def note(ended: "asyncio.Task[None]") -> None:
            self._background.discard(ended)
            _know(ended)

        task.add_done_callback(note)
        return task

    async def close(self) -> None:
        await asyncio.gather(*self._under_way.values(), *self._background, return_exceptions=True)

    def _begun(
        self, rid: str, call: Coroutine[None, None, ResultT], tell: Callable[[], None] = lambda: None
    ) -> "asyncio.Task[ResultT]":
        task = asyncio.create_task(call)
        self._under_way[rid] = task

        def note(ended: "asyncio.Task[ResultT]") -> None:
            self._under_way.pop(rid, None)
            _know(ended)
            tell()

        task.add_done_callback(note)
        return task

    async def _left(self, task: "asyncio.Task[object]", rid: str) -> None:
        await asyncio.wait([task], timeout=FIRST_S)  # a stream whose last token was read ends by itself
        await self._ended([task], rid)

    async def _ended(self, tasks: "Iterable[asyncio.Task[object]]", rid: str | None) -> None:
        pause, left = FIRST_S, {task for task in tasks if not task.done()}
        while left:
            with suppress(SlimeError):  # the server is gone, so the calls end by themselves
                await self._abort(rid)
            _, left = await asyncio.wait(left, timeout=pause)
            pause = min(2 * pause, LONGEST_S)


def _know(ended: "asyncio.Task[ResultT]") -> None:
    """Retrieve the error of a task that may have no waiter: asyncio logs errors that are never retrieved."""
    if not ended.cancelled():
        ended.exception()
