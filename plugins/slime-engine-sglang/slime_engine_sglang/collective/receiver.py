"""SentVersion: an engine's side of both transports. Its server loads weights from rank 0's broadcasts or handles.

Example:

    hello = Hello(channel.secret, engine=0, version=3, server=server.url, ranks=1)
    async with connect(channel, hello, sessions=True) as source:
        await weights.switch(server, source, 3)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

from slime_core.errors import SlimeError, WorkerError
from slime_engine_sglang.collective.messages import (
    DONE,
    LONGEST,
    READY,
    Bucket,
    Handles,
    Hello,
    Join,
    Message,
    decode,
    encode,
    parse_as,
)
from slime_engine_sglang.collective.transports import CollectiveChannel
from slime_engine_sglang.server import Server, Table
from slime_engine_sglang.weights import ServerHangs, WeightsUnchanged

CHECK_S = 0.02


class SentVersion:
    """A version that rank 0 sends; implements `slime_engine_sglang.weights.Source`. It can be loaded only once."""

    is_reloadable: ClassVar[bool] = False

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, sessions: bool) -> None:
        self._reader, self._writer, self._sessions = reader, writer, sessions
        self._is_loaded = False
        self._receiving: asyncio.Task[Message] | None = None

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        if self._is_loaded:
            raise WorkerError(f"version {version} of the weights was sent once and cannot be loaded again")
        self._is_loaded = True
        try:
            await self._session(server, "/begin_weight_update")
            await self._send(READY)
            order = await self._join(server, await self._receive())
        except ServerHangs:
            raise
        except SlimeError as error:
            await self._end(server)
            raise WeightsUnchanged(str(error)) from error
        try:
            while (call := _load_call(order, version, flush=flush)) is not None:
                await self._ask(server, *call)
                await self._send(DONE)
                order = await self._receive()
            if not _is_end(order):
                raise WorkerError(f"version {version} of the weights was not sent completely: {_why(order)}")
        except ServerHangs:
            raise
        except SlimeError:
            await self._end(server)
            raise
        await self._session(server, "/end_weight_update")

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)

    async def _join(self, server: Server, order: Message) -> Message:
        """Join a process group if the order is `Join`. Returns the first order about weights."""
        if join := parse_as(Join, order):
            if join.leave:
                with suppress(SlimeError):  # a restarted server was never in that group
                    await server.ask("/destroy_weights_update_group", {"group_name": join.leave})
            await self._ask(
                server,
                "/init_weights_update_group",
                {
                    "master_address": join.address,
                    "master_port": join.port,
                    "rank_offset": join.first,
                    "world_size": join.size,
                    "group_name": join.name,
                    "backend": join.backend,
                },
            )
            await self._send(DONE)
            order = await self._receive()
        if _load_call(order, "", flush=False) is None:
            raise WorkerError(f"the trainer's first rank sent no weights: {_why(order)}")
        return order

    async def _session(self, server: Server, path: str) -> None:
        if self._sessions:
            await server.ask(path, {})

    async def _end(self, server: Server) -> None:
        with suppress(SlimeError):
            await self._session(server, "/end_weight_update")

    async def _ask(self, server: Server, path: str, body: Table) -> None:
        """Call a collective operation of the server. Stops waiting if another participant has left."""
        asking = asyncio.create_task(server.ask(path, body))
        self._receiving = self._receiving or asyncio.create_task(self._read())
        try:
            await asyncio.wait([asking, self._receiving], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ServerHangs(f"{server.title} hangs in {path}: {_why(self._receiving.result())}")
            asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _send(self, message: Message) -> None:
        try:
            self._writer.write(encode(message))
            await self._writer.drain()
        except OSError as error:
            raise _unreachable(error) from error

    async def _receive(self) -> Message:
        """The next message; `_ask` may already have started to read it."""
        pending, self._receiving = self._receiving or asyncio.create_task(self._read()), None
        return await pending

    async def _read(self) -> Message:
        try:
            message = decode(await self._reader.readline())
        except (OSError, ValueError) as error:
            return {"failed": f"{error}"}
        return message or {"failed": "the trainer's first rank closed the connection"}


@asynccontextmanager
async def connect(channel: CollectiveChannel, hello: Hello, *, sessions: bool) -> AsyncIterator[SentVersion]:
    """Connect to rank 0 for a version. Raises WorkerError: rank 0 does not answer in time.

    `sessions`: the server accepts weights only between `/begin_weight_update` and `/end_weight_update`.
    """
    try:
        async with asyncio.timeout(channel.settings.timeout_s):
            port = await _port(channel.port_file)
            reader, writer = await asyncio.open_connection(channel.address, port, limit=LONGEST)
    except (OSError, ValueError, TimeoutError) as error:
        raise _unreachable(error) from error
    try:
        writer.write(encode(hello))
        sent_version = SentVersion(reader, writer, sessions=sessions)
        try:
            yield sent_version
        finally:
            await sent_version.close()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _port(file: Path) -> int:
    while not await asyncio.to_thread(file.exists):  # noqa: ASYNC110  # another machine creates the file
        await asyncio.sleep(CHECK_S)
    return int(await asyncio.to_thread(file.read_text, "utf-8"))


def _load_call(order: Message, version: str, *, flush: bool) -> tuple[str, Table] | None:
    named: Table = {"weight_version": version, "flush_cache": flush}
    if (handles := parse_as(Handles, order)) is not None:
        return "/update_weights_from_tensor", {**named, "serialized_named_tensors": list(handles.payloads)}
    if (bucket := parse_as(Bucket, order)) is None:
        return None
    body: Table = {
        **named,
        "names": list(bucket.names),
        "shapes": [list(shape) for shape in bucket.shapes],
        "dtypes": [bucket.dtype] * len(bucket.names),
        "group_name": bucket.group,
        "load_format": "flattened_bucket",
    }
    return "/update_weights_from_distributed", body


def _is_end(order: Message) -> bool:
    return order.get("end") is True


def _why(order: Message) -> object:
    return order.get("failed") or order


def _unreachable(why: object) -> WorkerError:
    return WorkerError(f"cannot reach the trainer's first rank, which sends the weights: {why}")
