"""Server: an HTTP client of one SGLang server that raises its failures as errors. `watch_server` detects its death.

A refusal (4xx) is a `ModelError` with the server's message. Any other failure is a `WorkerError` that names the server:
`NotAccepted` if a retry is safe, `RequestTimeout` if the server may still work on the request. If orjson is installed,
it parses and writes JSON, with the same result.

`watch_server` suspects that a server is dead if it is unreachable, or silent for a while although it has requests. Only
then it calls `/health_generate`, which generates a token. `ServerHost` watches the processes.

Example:

    server = Server("http://127.0.0.1:30000")
    info = await server.ask("/server_info")                         # GET
    reply = await server.ask("/generate", {"input_ids": [5, 6]}, timeout_s=3600.0)      # POST
    await watch_server(server, lambda: calls.is_busy and not weights.is_switching)  # raises WorkerError at its death
    await server.close()
"""

import asyncio
import enum
import functools
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias, TypeVar, cast

import aiohttp
from yarl import URL

from slime_core.errors import ModelError, WorkerError
from slime_core.sample import Json

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], Json]


def plain_json(content: object) -> bytes:
    """JSON by Python's own encoder."""
    return json.dumps(content, separators=(",", ":")).encode()


def fast_json() -> tuple[Encode, Decode]:
    """`encode` and `decode` by orjson. Raises ImportError: orjson is not installed."""
    orjson = import_module("orjson")
    encode, loads = cast(Encode, orjson.dumps), cast(Decode, orjson.loads)

    def decode(text: bytes) -> Json:
        try:
            return loads(text)
        except ValueError:  # a server may write NaN, which orjson refuses; the core's checks of engines report it
            return cast(Json, json.loads(text))

    return encode, decode


encode, decode = fast_json() if find_spec("orjson") else (plain_json, cast(Decode, json.loads))
"""`encode(content)`, and `decode(text)`, which raises ValueError if the text is not JSON."""


Table: TypeAlias = Mapping[str, Json]
ResultT = TypeVar("ResultT")

REFUSALS = range(400, 500)
BUSY = 503
CONNECT_S = 10.0
PROBE = aiohttp.ClientTimeout(total=5.0, sock_connect=2.0)
GENERATES = aiohttp.ClientTimeout(total=25.0, sock_connect=2.0)
"""Timeouts of the liveness check and of `/health_generate`, whose own limit is 20 s."""
READY = {"/ready": PROBE, "/health_generate": GENERATES}  # Readiness checks with timeouts; `/ready` exists since 0.5.21
IDLE_S = 2.0
"""Seconds after which an idle connection is not reused: SGLang closes it after 5 s, perhaps during a request."""
LONGEST_MESSAGE = 2_000
NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
FAILURES = (aiohttp.ClientError, OSError, RuntimeError)  # Errors of a connection; TimeoutError is an OSError
EVENT = b"data: "
DONE = b"[DONE]"
HEADERS = {"Content-Type": "application/json"}


class ServerState(enum.Enum):
    """State of the server at an address."""

    READY = "accepts requests"
    NOT_YET = "is not ready"  # It is starting or paused
    CLOSED = "refuses connections: nothing listens there"
    SILENT = "accepts connections but does not answer"  # No HTTP response, or not in time
    FOREIGN = "is not an SGLang server"


class NotAccepted(WorkerError):
    """A request that was never sent or that the server refused with status 503; it can be sent again."""


class Busy(NotAccepted):
    """A request that the server refused with status 503 because it is full."""


class RequestTimeout(WorkerError):
    """A request without a response at its deadline; the server may still work on it."""


class Server:
    """HTTP client of one server, with any number of connections, since SGLang queues requests itself."""

    def __init__(self, url: str, title: str = "") -> None:
        """Create a client inside a running loop; `title` names the server in errors: "engine 0 (pid 4711)"."""
        self.url = url
        self.title = f"{title}, {url}" if title else url
        self.last_response = time.monotonic()  # Time of the last response
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            timeout=_limit(None),
            headers=HEADERS,
            # Cookies are off: too slow at hundreds of requests a second.
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            auto_decompress=False,
        )

    async def ask(
        self,
        path: str,
        body: Table | None = None,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> Table:
        return self.read(path, await self.fetch(path, body, timeout_s=timeout_s, headers=headers, method=method))

    async def fetch(
        self,
        path: str,
        body: Table | None = None,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> bytes:
        usual, data = ("GET", None) if body is None else ("POST", encode(body))
        limit = _limit(timeout_s)
        try:
            async with self._session.request(
                method or usual, _url(self.url + path), data=data, headers=headers, timeout=limit
            ) as reply:
                status, text = reply.status, await reply.read()
                self.last_response = time.monotonic()
        except FAILURES as error:
            raise self._connection_error(path, error, timeout_s) from error
        if not 200 <= status < 300:
            raise self._status_error(path, status, text)
        return text

    def read(self, path: str, text: bytes) -> Table:
        """The JSON object in a response; empty text is an empty object. Raises WorkerError: it is not an object."""
        return {} if text in (b"", b"null") else self._read(path, text)

    async def events(
        self, path: str, body: Table, *, timeout_s: float | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Table, None]:
        """POST a body and yield the newest events of the stream. Skips older events, since SGLang's are cumulative."""
        unread, ended = b"", False
        limit = _limit(timeout_s)
        try:
            async with self._session.post(
                _url(self.url + path), data=encode(body), headers=headers, timeout=limit
            ) as reply:
                if reply.status != 200:
                    raise self._status_error(path, reply.status, await reply.read())
                async for part in reply.content.iter_any():
                    self.last_response = time.monotonic()
                    *blocks, unread = (unread + part).split(b"\n\n")
                    data_lines = [block[len(EVENT) :] for block in blocks if block.startswith(EVENT)]
                    ended = ended or DONE in data_lines
                    if data_lines := [each for each in data_lines if each != DONE]:
                        yield self._event(path, data_lines[-1])
        except FAILURES as error:
            raise self._connection_error(path, error, timeout_s) from error
        if not ended:
            raise WorkerError(f"{self.title}: the stream of {path} ended too early")

    async def state(self) -> ServerState:
        """Whether the server accepts requests. A release without `/ready` generates a token for the check."""
        for path, limit in READY.items():
            found = await self._status(path, limit)
            if isinstance(found, ServerState):
                return found
            if found != 404:
                return ServerState.READY if found == 200 else ServerState.NOT_YET
        return ServerState.FOREIGN

    async def liveness(self) -> ServerState:
        """Whether the HTTP process answers, which it also does while the server is paused."""
        found = await self._status("/ready", PROBE)
        return found if isinstance(found, ServerState) else ServerState.READY

    async def listens(self, path: str, timeout_s: float) -> bool:
        return await self._status(path, _limit(timeout_s)) == 200

    async def is_alive(self) -> bool:
        """Whether the server still generates a token, for this check or for another request."""
        return await self._status("/health_generate", GENERATES) == 200

    async def _status(self, path: str, limit: aiohttp.ClientTimeout) -> int | ServerState:
        try:
            async with self._session.get(self.url + path, timeout=limit) as reply:
                return reply.status
        except aiohttp.ClientConnectorError:
            return ServerState.CLOSED
        except FAILURES:
            return ServerState.SILENT

    async def close(self) -> None:
        await self._session.close()

    def parse(self, path: str, read: Callable[[], ResultT]) -> ResultT:
        """Result of parsing a response. Raises WorkerError: the response does not have SGLang's format."""
        try:
            return read()
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._format_error(path, repr(error)) from error

    def _format_error(self, path: str, why: object) -> WorkerError:
        return WorkerError(f"{self.title}: the response of {path} is not in SGLang's format: {why}")

    def _event(self, path: str, event: bytes) -> Table:
        content = self._read(path, event)
        if "error" in content:
            raise self._status_error(path, _status_in(content), event)
        return content

    def _read(self, path: str, text: bytes) -> Table:
        try:
            content = decode(text)
        except ValueError as error:
            raise self._format_error(path, f"{error}: {text[:200]!r}") from None
        if not isinstance(content, dict):
            raise self._format_error(path, f"expected a JSON object, got {text[:200]!r}")
        return content

    def _status_error(self, path: str, status: int, text: bytes) -> ModelError | WorkerError:
        message = _error_message(text)
        if status in REFUSALS:
            return ModelError(f"SGLang refuses {path}: {message} ({self.title})")
        kind = Busy if status == BUSY else WorkerError
        return kind(f"{self.title}: {path} returned status {status}: {message}")

    def _connection_error(self, path: str, error: Exception, timeout_s: float | None) -> WorkerError:
        text = f"{self.title}: no response to {path}"
        if isinstance(error, NEVER_SENT):
            return NotAccepted(f"{text}: {type(error).__name__}: {error}")
        if isinstance(error, TimeoutError) and timeout_s is not None:
            return RequestTimeout(f"{text} within {timeout_s:g} s")
        return WorkerError(f"{text}: {type(error).__name__}: {error}")


_url = functools.lru_cache(maxsize=256)(URL)  # Parse each URL once: there are hundreds of requests a second


@functools.cache
def _limit(timeout_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)


def _error_message(text: bytes) -> str:
    """Message in an error's body: `error`, `message` or `detail`, possibly nested; otherwise the whole body."""
    plain = text.decode(errors="replace").strip()[:LONGEST_MESSAGE]
    try:
        found: Json = decode(text)
    except ValueError:
        return plain or "(empty response)"
    while isinstance(found, dict):
        inner = next((found[key] for key in ("error", "message", "detail") if found.get(key)), None)
        if inner is None:
            return plain
        found = inner
    return str(found)[:LONGEST_MESSAGE]


def _status_in(content: Table) -> int:
    """HTTP status of an error event; SGLang also sends refusals as events."""
    error = content["error"]
    code = cast(Table, error).get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else REFUSALS[0]


CHECK_S = 1.0  # Seconds between two checks
FAILED_CHECKS = 3  # Failed checks in a row after which a server is suspected
SILENCE_S = 30.0  # Seconds without a response, while requests are running, after which a server is suspected


async def watch_server(server: Server, has_requests: Callable[[], bool], silence_s: float = SILENCE_S) -> None:
    """Poll the server until it is dead, then raise WorkerError. `has_requests` returns whether requests are running."""
    unreached, since = 0, time.monotonic()
    while True:
        await asyncio.sleep(CHECK_S)
        state = await server.liveness()
        unreached = 0 if state is ServerState.READY else unreached + 1
        if not has_requests():
            since = time.monotonic()
        silent_s = time.monotonic() - max(since, server.last_response)
        if unreached < FAILED_CHECKS and silent_s < silence_s:
            continue
        if not await server.is_alive():
            how = state.value if unreached else f"has sent no response for {silent_s:.0f} s"
            raise WorkerError(f"{server.title} {how}, and does not answer /health_generate. It counts as dead")
        unreached, since = 0, time.monotonic()
