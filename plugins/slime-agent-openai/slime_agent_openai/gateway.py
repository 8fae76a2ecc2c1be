"""Gateway: the HTTP server that agents talk to. A key, in the path or in a header, names the session.

Example:

    gateway = Gateway(Address())
    await gateway.start()
    async with gateway.opened(session) as url:    # "http://127.0.0.1:41234/s/KEY"
        ...                                       # OPENAI_BASE_URL = url + "/v1", ANTHROPIC_BASE_URL = url
    await gateway.close()
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web
from aiohttp.typedefs import Handler

from slime_agent_openai.connections import LIMITS, Door, Limits, Refusals, end_connections, finish, read_body
from slime_agent_openai.errors import ApiError, nested_too_deeply, refused, session_closed
from slime_agent_openai.exchange import Exchange
from slime_agent_openai.message import Request
from slime_agent_openai.response_store import ResponseStore, Turn, answered
from slime_agent_openai.session import Session
from slime_agent_openai.wires.bodies import Bodies, Known
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.completions import read_completions
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.options import Hosted
from slime_agent_openai.wires.responses import read_responses
from slime_agent_openai.wires.values import Value
from slime_agent_openai.wires.wire import Body, NewId, Wire, anthropic_error, openai_error
from slime_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Route:
    """A path that replies."""

    read: Callable[[Body, NewId, Turn, Known], tuple[Request, Wire]]
    """Reads a body, given what it goes on from if the session stores that, and what was read of the one before."""
    describe: Callable[[ApiError], Body]  # Body of an error
    is_kept: bool = False  # Whether its replies are stored, and its bodies may name what is


def routes(hosted: Hosted) -> dict[str, Route]:
    """All of them, by path."""
    return {
        "chat/completions": Route(lambda body, new_id, _, known: read_chat(body, new_id, known), openai_error),
        "completions": Route(lambda body, new_id, _, __: read_completions(body, new_id), openai_error),
        "responses": Route(
            lambda body, new_id, turn, _: read_responses(body, new_id, turn, hosted=hosted), openai_error, is_kept=True
        ),
        "messages": Route(
            lambda body, new_id, _, known: read_messages(body, new_id, known, hosted=hosted), anthropic_error
        ),
    }


MOST_CLOSED = 100_000  # Keys of sessions that have ended that are told from unknown ones; 12 MB
BACKLOG = 4096  # Connections that may wait to be accepted: a thousand agents begin at once
CLOSE_S = 0.2
"""Seconds, twice, that a close gives each connection: one that was just made and asks nothing yet waits that long."""
LINGER_S = 2.0
"""Seconds in which the rest of a refused body is read and thrown away, so that its client reads the answer."""
TURNS = 5  # Turns of the event loop within which a connection that was accepted is made
SUBAGENT_HEADERS = ("x-claude-code-agent-id",)  # By which clients say which of their agents asks; a setting adds more
COUNTS = {"messages/count_tokens": "messages", "responses/input_tokens": "responses"}
"""Paths that say how many tokens the prompt of a request would have, and whose request that is."""
RETRIES = "x-stainless-retry-count"  # How often a client sent the request before; SDKs of both protocols say it


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is."""

    host: str = "127.0.0.1"
    """Address to bind; others than this machine's agents reach one that is not a loopback address."""
    port: int = 0  # 0 takes a free one
    public_url: str = ""  # What agents elsewhere reach it by; empty: host and port


@dataclass(frozen=True, slots=True)
class _Asker:
    """What was read of one agent's requests of one kind: it begins its next one with the same."""

    bodies: Bodies = field(default_factory=Bodies)  # As JSON
    known: Known = field(default_factory=Known)  # As messages and tools


@dataclass(slots=True)
class _Opened:
    """A session that may be asked, and what was asked of it."""

    session: Session
    exchanges: dict[tuple[str, str, bytes], Exchange] = field(default_factory=dict)
    """The latest of each route, agent and body, for a client that sends it again."""
    told: dict[bytes, Body] = field(default_factory=dict)
    """The latest answer to each body that is not for the model, for a client that sends it again."""
    askers: defaultdict[tuple[str, str], _Asker] = field(default_factory=lambda: defaultdict(_Asker))
    """By the route, and the name of the agent."""
    memory: ResponseStore = field(init=False)  # What it stores

    def __post_init__(self) -> None:
        self.memory = ResponseStore(self.session.new_id)


class Gateway:
    """One server for all samples of a run."""

    def __init__(
        self,
        address: Address | None = None,
        *,
        hosted: Hosted = "refuse",
        subagent_headers: Sequence[str] = (),
        beside: Sequence[web.RouteDef] = (),
        limits: Limits | None = None,
    ) -> None:
        """`hosted`: what becomes of tools that a provider would run; `subagent_headers` name the agent of a session.

        `beside`: what else its server answers, for no session.
        """
        self._address = address or Address()
        self._routes = routes(hosted)
        self._headers = (*SUBAGENT_HEADERS, *subagent_headers)
        self._beside = tuple(beside)
        self._opened: dict[str, _Opened] = {}
        self._closed: dict[str, None] = {}
        self._limits, self._refusals = limits or Limits(), Refusals()
        self._runner: web.AppRunner | None = None
        self._door: Door | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Bind and listen. Raises ConfigError: the address is taken, or none of this machine's."""
        app = web.Application(client_max_size=self._limits.body, middlewares=[self._heard])
        app[LIMITS] = self._limits
        app.add_routes(self._beside)
        app.router.add_route("*", "/s/{key}/{path:.*}", self._handle)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without handler_cancellation nobody hears of a client that went away, and its turn would be trained on.
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
        assert self._runner.server is not None
        self._door = Door(self._runner.server, self._limits, self._refusals)
        host, port = self._address.host, self._address.port
        try:
            await finish(self._listen(host, port))
        except OSError as error:
            await self.close()
            told = f"agents cannot be answered at {host}, port {port}: {error.strerror}"
            raise ConfigError(f"{told}. host and port of the generator say where; port = 0 takes a free one") from None

    async def _listen(self, host: str, port: int) -> None:
        assert self._door is not None
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._door, host, port, backlog=BACKLOG)

    async def close(self) -> None:
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        server = runner.server
        try:
            if self._listening is not None:
                self._listening.close()
            for _ in range(TURNS):  # aiohttp forgets, and does not close, what is made while it closes the others
                await asyncio.sleep(0)
            await runner.cleanup()
        finally:
            if server is not None:
                end_connections(server, TURNS)  # connections that a cancelled cleanup has left open

    @property
    def url(self) -> str:
        if self._address.public_url:
            return self._address.public_url.rstrip("/")
        assert self._listening is not None, "it was started"
        host, port = self._listening.sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @asynccontextmanager
    async def opened(self, session: Session) -> AsyncIterator[str]:
        """Let a session be asked, at the URL that this gives; afterwards its key is refused."""
        opened = self._opened[session.key] = _Opened(session)
        try:
            yield f"{self.url}/s/{session.key}"
        finally:
            session.close()
            del self._opened[session.key]
            self._closed[session.key] = None
            if len(self._closed) > MOST_CLOSED:
                del self._closed[next(iter(self._closed))]
            for exchange in opened.exchanges.values():
                await exchange.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = _path(request)
        if request.method == "HEAD":
            return web.Response()  # some clients look first whether anybody is there
        is_anthropic = path.startswith("messages") or "anthropic-version" in request.headers
        describe = anthropic_error if is_anthropic else openai_error
        try:
            return await self._answered(request, path)
        except (ApiError, RecursionError) as error:
            told = error if isinstance(error, ApiError) else nested_too_deeply()
            self._refusals.note(told.code, told.message)
            headers = {"x-should-retry": "true" if told.retry else "false"}
            response = web.json_response(describe(told), status=told.status, headers=headers)
            if told.status in (408, 413):
                response.force_close()  # what else comes is the rest of the body
            return response

    async def _answered(self, request: web.Request, path: str) -> web.StreamResponse:
        opened = self._whose(request)
        if request.method == "POST":
            return await self._posted(request, opened, path)
        found = answered(opened.memory, request.method, path, Value(dict(request.query)))
        if found is None:
            raise ApiError(404, f"nothing answers {request.method} /v1/{path}", code="not_found")
        return web.json_response(found)

    @web.middleware
    async def _heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._door is not None
        self._door.heard(request)
        return await handler(request)

    async def _posted(self, request: web.Request, opened: _Opened, path: str) -> web.StreamResponse:
        name = COUNTS.get(path, path)
        route = self._routes.get(name)
        raw = await read_body(request)
        agent = self._agent(request)
        if route is None:
            return web.json_response(self._told(opened, request, raw))
        asker = opened.askers[name, agent]
        body = _object(raw, asker.bodies)
        turn = opened.memory.turn(body) if route.is_kept else Turn()
        asked, wire = route.read(body, opened.session.new_id, turn, asker.known)
        asked = replace(asked, agent=agent) if agent else asked
        if path != name:
            kind: Body = {"object": "response.input_tokens"} if route.is_kept else {}
            return web.json_response({**kind, "input_tokens": await opened.session.prompt_tokens(asked)})
        sent = name, agent, asker.bodies.digest
        exchange = opened.exchanges.get(sent)
        if exchange is None or not exchange.is_of_use or not _is_again(request, exchange):
            exchange = opened.exchanges[sent] = self._begun(opened, route, turn, asked, wire)
        return await _sent(exchange, request)

    def _begun(self, opened: _Opened, route: Route, turn: Turn, asked: Request, wire: Wire) -> Exchange:
        def keep(replied: Body) -> None:
            opened.memory.keep(turn, asked.ids, replied)

        def describe(error: ApiError) -> Body:
            self._refusals.note(error.code, error.message)
            return route.describe(error)

        session = opened.session
        return Exchange(
            wire, lambda listener: session.reply(asked, listener), describe, keep if route.is_kept else None
        )

    def _told(self, opened: _Opened, request: web.Request, raw: bytes) -> Body:
        path = _path(request)
        digest = hashlib.blake2b(b"\0".join((path.encode(), raw)), digest_size=16).digest()
        is_again = request.headers.get(RETRIES, "0") != "0" and digest in opened.told
        found = (
            opened.told[digest]
            if is_again
            else answered(opened.memory, "POST", path, Value(_object(raw or b"{}", Bodies())))
        )
        if found is None:
            known = ", ".join(f"/v1/{each}" for each in (*self._routes, *COUNTS, "conversations"))
            raise ApiError(404, f"nothing answers POST /v1/{path}; there are {known}", code="not_found")
        opened.told[digest] = found
        return found

    def _whose(self, request: web.Request) -> _Opened:
        key = request.match_info.get("key", "")
        if not key:
            bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            key = bearer or request.headers.get("x-api-key", "")
        if (opened := self._opened.get(key)) is not None:
            return opened
        if key in self._closed:
            raise session_closed()
        told = "this key is of no session that is open" if key else "no key: give the session's as a bearer token"
        raise ApiError(401, told, code="invalid_api_key")

    def _agent(self, request: web.Request) -> str:
        return next((value for name in self._headers if (value := request.headers.get(name))), "")


def _path(request: web.Request) -> str:
    return request.match_info["path"].strip("/").removeprefix("v1/")


def _is_again(request: web.Request, exchange: Exchange) -> bool:
    """Whether a client sends what it has sent before; two that live and ask the same are two, as those of a vote."""
    return request.headers.get(RETRIES, "0") != "0" or exchange.was_lost


async def _sent(exchange: Exchange, request: web.Request) -> web.StreamResponse:
    exchange.was_lost = False
    async with exchange:
        was_sent = False
        try:
            await exchange.begun()
            if not exchange.status:  # it was given up with its session, before there was anything to say
                raise session_closed()
            response = _response(exchange, b"" if exchange.streams else await exchange.whole())
            await response.prepare(request)
            if exchange.streams:
                async for chunk in exchange.chunks():  # the last one takes the stream's end with it
                    await (response.write_eof(chunk) if exchange.is_over else response.write(chunk))
            await response.write_eof()
            was_sent = True
            return response
        except ConnectionError:  # whoever asked is gone, and that is not a fault to be logged
            return response
        finally:
            exchange.was_lost = not was_sent


def _response(exchange: Exchange, body: bytes) -> web.StreamResponse:
    """Status and headers, and the body of what is not a stream: one that is known is one packet, not three."""
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
        raise refused(f"the body is not JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise nested_too_deeply() from None
    if not isinstance(body, Mapping):
        raise refused(f"the body is a {type(body).__name__}; expected an object", code="invalid_json")
    return dict(body)
