"""The kit's fake engine as a process that tests can kill and stop: SGLang's HTTP API without SGLang.

python fake_server.py ... --host 127.0.0.1 --port 30000 [--seconds 0.2]
"""

import argparse
import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from urllib.parse import urlsplit

from slime_testing.fake_engine import FakeEngine, Slow

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--host")
parser.add_argument("--port", type=int)
given, _ = parser.parse_known_args()


async def copy(source: StreamReader, sink: StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await source.read(2**16):
            sink.write(part)
            await sink.drain()


async def main() -> None:
    """Pass each connection on to the fake engine, which chooses its port itself."""

    async def relay(reader: StreamReader, writer: StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", urlsplit(engine.url).port)
        ways = [asyncio.create_task(copy(reader, inner_writer)), asyncio.create_task(copy(inner_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, inner_writer):
            each.close()

    async with FakeEngine(Slow(0.2)) as engine:
        server = await asyncio.start_server(relay, given.host, given.port, backlog=512)
        await server.serve_forever()


asyncio.run(main())
