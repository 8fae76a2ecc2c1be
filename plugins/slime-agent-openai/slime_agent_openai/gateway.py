"""Gateway: the HTTP server that agents query. A key, in the path or in a header, selects the session.

Example:

    gateway = Gateway(Address())
    await gateway.start()
    async with gateway.open_session(session) as url:  # "http://127.0.0.1:41234/s/KEY"
        ...                                       # OPENAI_BASE_URL = url + "/v1", ANTHROPIC_BASE_URL = url
    await gateway.close()
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web

from slime_agent_openai.connections import LIMITS, Limits, Refusals, finish, read_body
from slime_agent_openai.errors import IN_SECTION, ApiError, bad_request, nested_too_deeply, session_closed
from slime_agent_openai.exchange import Exchange
from slime_agent_openai.message import Request
from slime_agent_openai.session import Session
from slime_agent_openai.wires.bodies import Bodies, HistoryCache
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.completions import read_completions
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.options import Hosted
from slime_agent_openai.wires.responses import ResponseStore, read_responses
from slime_agent_openai.wires.wire import Body, NewId, Wire, anthropic_error, model_body, models_body, openai_error
from slime_core.errors import ConfigError

Read = Callable[[Body, NewId, ResponseStore, HistoryCache], tuple[Request, Wire]]
"""Reads a body, given the session's stored replies and the cache of earlier bodies."""


def readers(hosted: Hosted) -> dict[str, Read]:
    """The reader of each path that replies."""
    return {
        "chat/completions": lambda body, new_id, _, known: read_chat(body, new_id, known),
        "completions": lambda body, new_id, _, __: read_completions(body, new_id),
        "responses": lambda body, new_id, store, _: read_responses(body, new_id, store, hosted=hosted),
        "messages": lambda body, new_id, _, known: read_messages(body, new_id, known, hosted=hosted),
    }


MAX_CLOSED_KEYS = 100_000  # Maximum keys of ended sessions that are kept, to distinguish them from unknown keys; 12 MB
BACKLOG = 4096  # Connections that may wait to be accepted: a thousand agents may start at once
CLOSE_S = 0.2
"""Seconds, used twice, that a close allows each connection. A new connection without a request waits this long."""
LINGER_S = 2.0
"""Seconds for reading and discarding the rest of a refused body; its client reads the answer only afterwards."""
SETUP_TURNS = 5  # Event loop turns within which an accepted connection is set up
SUBAGENT_HEADERS = ("x-claude-code-agent-id",)  # Headers with the name of the requesting agent; a setting adds more
COUNTS = {"messages/count_tokens": "messages", "responses/input_tokens": "responses"}
"""Paths that count the prompt tokens of a request, with the path whose request they take."""
RETRIES = "x-stainless-retry-count"  # Header with a request's number of retries; SDKs of both protocols send it


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway listens, and the URL that agents use."""

    host: str = "127.0.0.1"
    """Address to bind. Agents on other machines can reach it only if it is not a loopback address."""
    port: int = 0  # 0 takes a free port
    public_url: str = ""  # URL for agents on other machines; empty: host and port


@dataclass(frozen=True, slots=True)
class _RequestCache:
    """Cache of one agent's requests on one route: its next request begins with the same history."""

    bodies: Bodies = field(default_factory=Bodies)  # The request bodies, as JSON
    known: HistoryCache = field(default_factory=HistoryCache)  # Their messages and tools


@dataclass(slots=True)
class _OpenSession:
    """An open session and its requests."""

    session: Session
    exchanges: dict[tuple[str, str, bytes], Exchange] = field(default_factory=dict)
    """The latest exchange of each route, agent and body, for a client that sends it again."""
    caches: defaultdict[tuple[str, str], _RequestCache] = field(default_factory=lambda: defaultdict(_RequestCache))
    """By route and agent name."""
    store: ResponseStore = field(default_factory=ResponseStore)  # Replies that requests may refer to


class Gateway:
    """One server for all samples of a run."""

    def __init__(
        self,
        address: Address | None = None,
        *,
        hosted: Hosted = "refuse",
        subagent_headers: Sequence[str] = (),
        extra_routes: Sequence[web.RouteDef] = (),
        limits: Limits | None = None,
    ) -> None:
        """`hosted`: how to handle tools that a provider would run; `subagent_headers`: headers with a sub-agent's name.

        `extra_routes`: more routes for the server, outside any session.
        """
        self._address = address or Address()
        self._readers = readers(hosted)
        self._headers = (*SUBAGENT_HEADERS, *subagent_headers)
        self._extra_routes = tuple(extra_routes)
        self._open_sessions: dict[str, _OpenSession] = {}
        self._closed_keys: dict[str, None] = {}
        self._limits, self._refusals = limits or Limits(), Refusals()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Bind and listen. Raises ConfigError if the address is in use or not on this machine."""
        app = web.Application(client_max_size=self._limits.body)
        app[LIMITS] = self._limits
        app.add_routes(self._extra_routes)
        app.router.add_route("*", "/s/{key}/{path:.*}", self._handle)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without handler_cancellation, a request whose client hung up would continue, and its turn would be trained on.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=CLOSE_S,
            keepalive_timeout=self._limits.idle_s,
            lingering_time=LINGER_S,
            logger=self._refusals.logger,
        )
        await self._runner.setup()
        host, port = self._address.host, self._address.port
        try:
            await finish(web.TCPSite(self._runner, host, port, backlog=BACKLOG).start())
        except OSError as error:
            await self.close()
            problem = f"the gateway cannot listen on {host}, port {port}: {error.strerror}"
            raise ConfigError(f"{problem}. Change host or port {IN_SECTION}; port = 0 takes a free one") from None

    async def close(self) -> None:
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        server = runner.server
        try:
            for site in list(runner.sites):
                await site.stop()
            for _ in range(SETUP_TURNS):  # aiohttp never closes connections that are set up while it closes the others
                await asyncio.sleep(0)
            await runner.cleanup()
        finally:
            if server is not None:
                for connection in server.connections:  # connections that a cancelled cleanup left open
                    connection.force_close()

    @property
    def url(self) -> str:
        if self._address.public_url:
            return self._address.public_url.rstrip("/")
        assert self._runner is not None, "call start() first"
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @asynccontextmanager
    async def open_session(self, session: Session) -> AsyncIterator[str]:
        """Accept requests for a session at the URL that this yields; refuse its key afterwards."""
        opened = self._open_sessions[session.key] = _OpenSession(session)
        try:
            yield f"{self.url}/s/{session.key}"
        finally:
            session.close()
            del self._open_sessions[session.key]
            self._closed_keys[session.key] = None
            if len(self._closed_keys) > MAX_CLOSED_KEYS:
                del self._closed_keys[next(iter(self._closed_keys))]
            for exchange in opened.exchanges.values():
                await exchange.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = _path(request)
        if request.method == "HEAD":
            return web.Response()  # some clients first check that the server is up
        is_anthropic = path.startswith("messages") or "anthropic-version" in request.headers
        describe = anthropic_error if is_anthropic else openai_error
        try:
            return await self._answer(request, path)
        except (ApiError, RecursionError) as error:
            refusal = error if isinstance(error, ApiError) else nested_too_deeply()
            self._refusals.note(refusal.code, refusal.message)
            headers = {"x-should-retry": "true" if refusal.retry else "false"}
            response = web.json_response(describe(refusal), status=refusal.status, headers=headers)
            if refusal.status in (408, 413):
                response.force_close()  # the connection would go on with the rest of the body
            return response

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        opened = self._session_of(request)
        if request.method == "POST" and COUNTS.get(path, path) in self._readers:
            return await self._post(request, opened, path)
        match request.method, path.split("/"):
            case "GET", ["models"]:
                return web.json_response(models_body())
            case "GET", ["models", name]:
                return web.json_response(model_body(name))
            case "GET", ["responses", name] if name in opened.store.replies:
                return web.json_response(opened.store.replies[name])
        known = ", ".join(f"/v1/{each}" for each in (*self._readers, *COUNTS))
        problem = f"no route for {request.method} /v1/{path}; POST to one of {known}"
        raise ApiError(404, problem, code="not_found")

    async def _post(self, request: web.Request, opened: _OpenSession, path: str) -> web.StreamResponse:
        name, agent = COUNTS.get(path, path), self._agent_name(request)
        cache = opened.caches[name, agent]
        body = _object(await read_body(request), cache.bodies)
        parsed, wire = self._readers[name](body, opened.session.new_id, opened.store, cache.known)
        parsed = replace(parsed, agent=agent) if agent else parsed
        if path != name:
            kind: Body = {"object": "response.input_tokens"} if name == "responses" else {}
            return web.json_response({**kind, "input_tokens": await opened.session.prompt_tokens(parsed)})
        key = name, agent, cache.bodies.digest
        exchange = opened.exchanges.get(key)
        if exchange is None or not exchange.is_reusable or not _is_retry(request, exchange):
            exchange = opened.exchanges[key] = self._start_exchange(opened, name, parsed, wire)
        return await _send(exchange, request)

    def _start_exchange(self, opened: _OpenSession, name: str, parsed: Request, wire: Wire) -> Exchange:
        def describe(error: ApiError) -> Body:
            self._refusals.note(error.code, error.message)
            return (anthropic_error if name == "messages" else openai_error)(error)

        keep = opened.store.keep if name == "responses" else None
        return Exchange(wire, lambda listener: opened.session.reply(parsed, listener), describe, keep)

    def _session_of(self, request: web.Request) -> _OpenSession:
        key = request.match_info.get("key", "")
        if not key:
            bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            key = bearer or request.headers.get("x-api-key", "")
        if (opened := self._open_sessions.get(key)) is not None:
            return opened
        if key in self._closed_keys:
            raise session_closed()
        problem = "this key belongs to no open session" if key else "no key; send the session's key as a bearer token"
        raise ApiError(401, problem, code="invalid_api_key")

    def _agent_name(self, request: web.Request) -> str:
        return next((value for name in self._headers if (value := request.headers.get(name))), "")


def _path(request: web.Request) -> str:
    return request.match_info["path"].strip("/").removeprefix("v1/")


def _is_retry(request: web.Request, exchange: Exchange) -> bool:
    """Whether this is a retry or follows a lost connection. Equal requests that overlap otherwise get two answers."""
    return request.headers.get(RETRIES, "0") != "0" or exchange.was_disconnected


async def _send(exchange: Exchange, request: web.Request) -> web.StreamResponse:
    exchange.was_disconnected = False
    async with exchange:
        was_sent = False
        try:
            await exchange.wait_for_status()
            if not exchange.status:  # it was cancelled with its session, before it had a status
                raise session_closed()
            response = _response(exchange, b"" if exchange.streams else await exchange.body())
            await response.prepare(request)
            if exchange.streams:
                async for chunk in exchange.chunks():  # the last chunk carries the end of the stream
                    await (response.write_eof(chunk) if exchange.is_done else response.write(chunk))
            await response.write_eof()
            was_sent = True
            return response
        except ConnectionError:  # the client is gone, which is not an error to log
            return response
        finally:
            exchange.was_disconnected = not was_sent


def _response(exchange: Exchange, body: bytes) -> web.StreamResponse:
    """Status and headers; with a body that is not streamed, so that it takes one packet, not three."""
    kind = "text/event-stream" if exchange.streams else "application/json"
    headers = {"Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "no-cache"}
    if exchange.status != 200:
        headers["x-should-retry"] = "true" if exchange.may_retry else "false"
    if exchange.streams:
        return web.StreamResponse(status=exchange.status, headers=headers)
    return web.Response(status=exchange.status, headers=headers, body=body)


def _object(raw: bytes, bodies: Bodies) -> Body:
    try:
        body = bodies.read(raw)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise nested_too_deeply() from None
    if not isinstance(body, Mapping):
        raise bad_request(f"the body is a {type(body).__name__}; expected an object", code="invalid_json")
    return dict(body)
