"""Which tasks a call has left, told from those that a server has for its connections."""

import asyncio

from slime_testing.calling import tasks_of_calls
from tests.tables import table


@table("leaves, left", [(False, 0), (True, 1)])
def test_a_connection_is_nothing_left_behind_and_what_a_call_begins_is(leaves: bool, left: int) -> None:
    kept = list[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(asyncio.create_task(asyncio.sleep(60)))
        try:
            await reader.read()
        finally:
            writer.close()

    async def main() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with tasks_of_calls() as running:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await asyncio.create_task(asyncio.sleep(0.01))
            if leaves:
                kept.append(asyncio.create_task(asyncio.sleep(60)))
            found = running()
        assert len(kept) == 1 + leaves
        writer.close()
        server.close()
        return found

    assert asyncio.run(main()) == left
