"""Which tasks a server has for its connections, told from those that something left behind."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from slime_testing.calling import listening, unserved
from tests.tables import table


class Served(asyncio.Protocol):
    """A connection as servers of HTTP have it: a task of its own, with the protocol as `self`."""

    def __init__(self, serve: "Callable[[Served], Coroutine[None, None, None]]") -> None:
        self.transport: asyncio.BaseTransport | None = None
        self._serve = serve

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.task = asyncio.get_running_loop().create_task(self.serve())

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    async def serve(self) -> None:
        transport = self.transport
        try:
            await self._serve(self)
        finally:
            assert transport is not None
            transport.close()


async def waits(one: Served) -> None:
    BEGUN.append(one)
    await asyncio.sleep(60)


async def begins_and_leaves(one: Served) -> None:
    LEFT.append(asyncio.create_task(asyncio.sleep(60)))
    await waits(one)


BEGUN: list[Served] = []
LEFT: list["asyncio.Task[None]"] = []


@table("serve, left, kind", [(waits, 0, "unix"), (begins_and_leaves, 1, "tcp"), (begins_and_leaves, 1, "streams")])
def test_a_connection_is_nothing_left_behind_and_what_it_begins_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    serve: Callable[[Served], Coroutine[None, None, None]],
    left: int,
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 bytes

    async def streamed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(Served(serve))
        finally:
            writer.close()

    async def main() -> int:
        loop, before = asyncio.get_running_loop(), listening()
        match kind:
            case "tcp":
                server = await loop.create_server(lambda: Served(serve), "127.0.0.1", 0)
            case "unix":
                server = await loop.create_unix_server(lambda: Served(serve), "socket")
            case _:
                server = await asyncio.start_server(streamed, "127.0.0.1", 0)
        servers = listening() - before
        assert len(servers) == 1
        running = len(unserved(servers))
        name = server.sockets[0].getsockname()
        opened = asyncio.open_unix_connection(name) if isinstance(name, str) else asyncio.open_connection(*name[:2])
        _, writer = await opened
        while not BEGUN:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) > len(unserved(servers))
        found = len(unserved(servers)) - running
        writer.close()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)
        return found

    assert asyncio.run(main()) == left
    LEFT.clear()
    BEGUN.clear()
