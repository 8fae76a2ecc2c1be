"""Limits of the gateway's connections: how many, how long a head or a body may take, and how large a body may be.

Example:

    door = Door(server, Limits(), refusals)
    await asyncio.get_running_loop().create_server(door, host, port)
    raw = await read_body(request)          # ApiError: 413 too large, 408 too slow
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from slime_agent_openai.errors import ApiError, refused

log = logging.getLogger(__name__)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b'Content-Length: 95\r\n\r\n{"error": {"message": "too many connections: close some", "type": "api_error", '
    b'"code": "busy"}}'
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one gateway takes."""

    body: int = 32 << 20  # Bytes of one request: a history may hold whole files
    body_s: float = 60.0  # Seconds in which it has to come
    head_s: float = 30.0  # Seconds from a connection to the whole head of its first request
    idle_s: float = 120.0
    """Seconds from an answer to the whole head of the next request: longer than clients keep a connection."""
    connections: int = 8192  # At a time


LIMITS = web.AppKey("limits", Limits)


class Refusals:
    """Logs the first refusal of each kind, and no other: one agent may be refused a thousand times a second."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def note(self, kind: str, text: str) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            log.warning("a request of an agent is refused, %s: %s (logged once for this kind)", kind, text)

    @property
    def logger(self) -> logging.Logger:
        logger = logging.Logger(f"{__name__}.http")  # noqa: LOG001  # of one gateway: its filter goes with it
        logger.parent = log
        logger.addFilter(self._is_logged)
        return logger

    def _is_logged(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        self.note("not HTTP", str(error).splitlines()[0])
        return False


class Door:
    """Makes the protocol of each connection, as `create_server` asks for it."""

    def __init__(self, server: web.Server, limits: Limits, refusals: Refusals) -> None:
        self._server, self._limits, self._refusals = server, limits, refusals
        self._silent: set[asyncio.BaseProtocol] = set()

    def __call__(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= self._limits.connections:
            self._refusals.note("connections", f"{self._limits.connections} connections are open")
            return _Full()
        made = self._server()
        self._silent.add(made)
        asyncio.get_running_loop().call_later(self._limits.head_s, self._end_silent, made)
        return made

    def heard(self, request: web.BaseRequest) -> None:
        self._silent.discard(request.protocol)

    def _end_silent(self, connection: web.RequestHandler) -> None:
        if connection in self._silent:
            self._silent.remove(connection)
            if connection.transport is not None:
                self._refusals.note("silent", f"no request came within {self._limits.head_s:g} s of a connection")
            connection.force_close()


class _Full(asyncio.Protocol):
    """Answers a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(_FULL)
        transport.close()


async def read_body(request: web.Request) -> bytes:
    """The body of a request. Raises ApiError: it is too large, does not come in time, or is none."""
    limits = request.app[LIMITS]
    try:
        if (request.content_length or 0) > limits.body:
            raise web.HTTPRequestEntityTooLarge(limits.body, request.content_length or 0)
        async with asyncio.timeout(limits.body_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the body has more than {limits.body:,} bytes, the most that one request may have"
        raise ApiError(413, text, code="request_too_large") from None
    except TimeoutError:
        text = f"the body was not there after {limits.body_s:g} s"
        raise ApiError(408, text, code="request_timeout") from None
    except (ClientPayloadError, HttpProcessingError, web.RequestPayloadError) as error:
        raise refused(f"the body is not what its headers say: {error}", code="invalid_body") from None


def end_connections(server: web.Server, turns: int) -> None:
    """Close the open connections, now and in each of the next `turns` turns of the event loop."""
    for one in server.connections:
        one.force_close()
    if turns:
        asyncio.get_running_loop().call_soon(end_connections, server, turns - 1)


async def finish(start: Coroutine[None, None, None]) -> None:
    """Await to the end, also where it is cancelled: asyncio forgets a socket that listens when `start` is cut short."""
    starting = asyncio.ensure_future(start)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)
        raise
