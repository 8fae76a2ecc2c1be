"""The server side of HTTP/1.1 on asyncio's streams: as much as a client of an inference server makes use of.

Connections are kept alive, bodies may be chunked both ways, and a reply can break off at any byte.
"""

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import parse_headers
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

Parts: TypeAlias = AsyncGenerator[bytes, None]


class Hangup(Exception):
    """Raised by a handler, or by the parts of a reply: drop the connection here and now."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read to its end."""

    method: str
    """In capitals."""
    path: str
    """Without the query."""
    query: Mapping[str, str]
    """Decoded; the last value of a repeated name."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    """Empty if there was none."""
    gone: Callable[[], bool]
    """Whether the client has hung up since."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back."""

    status: int
    """HTTP status."""
    body: bytes | Parts
    """All of it, or its parts as they come."""
    content_type: str = JSON
    """Media type."""
    length: int | None = None
    """Announced length of a body in parts; None sends it chunked."""


Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]


async def serve_connection(handle: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection until either side has enough."""
    try:
        while (request := await _read(reader, writer)) is not None:
            await _write(writer, await handle(request))
            if request.headers.get("connection", "").lower() == "close":
                break
    except (Hangup, OSError, asyncio.IncompleteReadError):
        writer.transport.abort()
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request, or None when the client has no more.

    Raises:
        Hangup: the client speaks something else.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, _, rest = head.partition(b"\r\n")
    method, target, version = (*line.decode("latin-1").split(" "), "", "")[:3]
    if not version.startswith("HTTP/1."):
        raise Hangup  # a router asks in HTTP/2 whether this is a gRPC server
    headers = {name.lower(): value for name, value in parse_headers(io.BytesIO(rest)).items()}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    url = urlsplit(target)
    return Request(
        method,
        url.path,
        dict(parse_qsl(url.query)),
        headers,
        await _read_body(reader, headers),
        lambda: reader.at_eof() or writer.is_closing(),
    )


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return body


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    length = len(reply.body) if isinstance(reply.body, bytes) else reply.length
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {reply.content_type}\r\n{framing}\r\n\r\n".encode())
    if isinstance(reply.body, bytes):
        writer.write(reply.body)
    else:
        await _write_parts(writer, reply.body, chunked=length is None)
    await writer.drain()


async def _write_parts(writer: asyncio.StreamWriter, body: Parts, *, chunked: bool) -> None:
    async with contextlib.aclosing(body) as parts:
        async for part in parts:
            if part:  # an empty chunk would be the last
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
