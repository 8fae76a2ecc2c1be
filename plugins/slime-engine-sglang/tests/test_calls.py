"""Calls and gates: running requests are aborted until they have ended, and no request starts meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slime_core.errors import WorkerError
from slime_engine_sglang.calls import Calls, Gate
from tests.tables import table


class LateServer:
    """A server that ignores the first aborts of each request, as SGLang does before the request has arrived."""

    def __init__(self, deaf: int) -> None:
        self.left = deaf
        self.aborts: list[str | None] = []
        self.ended = asyncio.Event()

    async def abort(self, rid: str | None) -> None:
        self.aborts.append(rid)
        self.left -= 1
        if self.left < 0:
            self.ended.set()

    async def answer(self) -> str:
        await self.ended.wait()
        return "aborted"


class Failing(LateServer):
    """A server that does not answer these aborts either."""

    async def abort(self, rid: str | None) -> None:
        await super().abort(rid)
        if self.left >= 0:
            raise WorkerError("no answer")


@asynccontextmanager
async def calls_of(server: LateServer, common: Gate | None = None) -> AsyncIterator[Calls]:
    calls = Calls(server.abort, common)
    async with asyncio.timeout(10):
        yield calls
        await calls.close()


@table("kind", [LateServer, Failing])
async def test_aborts_repeat_until_requests_end(kind: type[LateServer]) -> None:
    server = kind(4)
    async with calls_of(server) as calls:
        running = [asyncio.create_task(calls.result_of(name, server.answer())) for name in "ab"]
        await asyncio.sleep(0)
        await calls.abort_all()
        assert [await each for each in running] == ["aborted"] * 2
        assert not calls.is_busy
    assert server.aborts == [None] * 5


async def test_cancelled_request_is_aborted_by_id() -> None:
    server = LateServer(3)
    async with calls_of(server) as calls:
        running = asyncio.create_task(calls.result_of("a", server.answer()))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        await server.ended.wait()
    assert server.aborts == ["a"] * 4


async def test_new_requests_wait_for_an_abort() -> None:
    server, common = LateServer(2), Gate()
    async with calls_of(server, common) as calls:
        others = Calls(server.abort, common)
        running = asyncio.create_task(calls.result_of("a", server.answer()))
        await asyncio.sleep(0)
        aborting = asyncio.create_task(calls.abort_all())
        await asyncio.sleep(0)
        for each in (calls, others):
            wait_open = asyncio.create_task(each.wait_open())
            await asyncio.sleep(0)
            assert not wait_open.done()
            wait_open.cancel()
        await aborting
        await asyncio.gather(running, calls.wait_open(), others.wait_open())
