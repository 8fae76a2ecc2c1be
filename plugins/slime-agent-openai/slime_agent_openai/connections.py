"""Limits of the gateway's requests: how large a body may be, and how long it may take.

Example:

    raw = await read_body(request)          # ApiError: 413 too large, 408 too slow
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from slime_agent_openai.errors import ApiError, bad_request

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one gateway."""

    body: int = 32 << 20  # Bytes of one request: a history may hold whole files
    body_s: float = 60.0  # Seconds in which the body must arrive
    idle_s: float = 120.0  # Seconds that an idle connection stays open: longer than clients keep it


LIMITS = web.AppKey("limits", Limits)


class Refusals:
    """Logs only the first refusal of each kind: one agent may be refused a thousand times a second."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def note(self, kind: str, text: str) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            log.warning("refused an agent's request, %s: %s (only the first of this kind is logged)", kind, text)

    @property
    def logger(self) -> logging.Logger:
        logger = logging.Logger(f"{__name__}.http")  # noqa: LOG001  # one per gateway: its filter ends with it
        logger.parent = log
        logger.addFilter(self._is_logged)
        return logger

    def _is_logged(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, web.RequestPayloadError):  # the body of a request that was refused
            return False
        if not isinstance(error, HttpProcessingError):
            return True
        self.note("not HTTP", str(error).splitlines()[0])
        return False


async def read_body(request: web.Request) -> bytes:
    """The body of a request. Raises ApiError if it is too large, too slow, or broken."""
    limits = request.app[LIMITS]
    try:
        if (request.content_length or 0) > limits.body:
            raise web.HTTPRequestEntityTooLarge(limits.body, request.content_length or 0)
        async with asyncio.timeout(limits.body_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the body is larger than the limit of {limits.body:,} bytes"
        raise ApiError(413, text, code="request_too_large") from None
    except TimeoutError:
        text = f"the body was incomplete after {limits.body_s:g} s"
        raise ApiError(408, text, code="request_timeout") from None
    except (ClientPayloadError, HttpProcessingError, web.RequestPayloadError) as error:
        raise bad_request(f"the body does not match its headers: {error}", code="invalid_body") from None


async def finish(start: Coroutine[None, None, None]) -> None:
    """Await to the end, even if cancelled: asyncio loses a listening socket when `start` is cut short."""
    starting = asyncio.ensure_future(start)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)
        raise
