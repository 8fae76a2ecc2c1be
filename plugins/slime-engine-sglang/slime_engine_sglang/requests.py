"""Requests: sends a request to the router or server, with retries and a deadline.

A request that the server did not accept is sent again. If a router fails, the request goes to the engine's own server,
which shows whether the router or the server failed. The run's engine pool does all other retries, on another engine.

Example:

    requests = Requests(server, facts, eos_token_ids, calls, fleet, weights, timeout_s=3600.0)
    output = await requests.generate(request)
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Set
from functools import partial

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.generate_api import (
    Facts,
    check,
    generate_body,
    has_room,
    parse_chunk,
    parse_output,
    score_body,
    shaping_settings,
    with_scores,
)
from slime_engine_sglang.router import Fleet
from slime_engine_sglang.server import Busy, NotAccepted, RequestTimeout, Server, Table
from slime_engine_sglang.weights import ServedWeights

GENERATE = "/generate"
SESSION = "X-SMG-Routing-Key"  # Header by which a router sends all turns of a conversation to one server
FIRST_S, LONGEST_S = 0.05, 2.0
"""Seconds before a request that was not accepted is sent again: the first pause and the longest."""
UNREACHABLE_S, BUSY_S = 1.0, 30.0  # Total seconds of pauses: for an unreachable server, and for a full server
MAX_SCORE_TRIES = 20  # Maximum number of tries of a scoring request that is aborted together with other requests


class Requests:
    """Sends requests for one engine."""

    def __init__(
        self,
        server: Server,
        facts: Facts,
        eos_token_ids: Set[int],
        calls: Calls,
        fleet: Fleet,
        weights: ServedWeights,
        *,
        timeout_s: float,
    ) -> None:
        self.facts = facts
        self._server, self._eos = server, eos_token_ids
        self._calls, self._fleet, self._weights = calls, fleet, weights
        self._timeout_s = timeout_s
        self._prefix, self._numbers = uuid.uuid4().hex, itertools.count()

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        check(request, self.facts)
        if shaping_settings(request.sampling):
            return await self._generate_scored(request)
        attempts = Attempts(self._calls)
        while (finish := await self._finish_early(request, attempts)) is None:
            server, rid = self._target(request, attempts), self._new_rid()
            call = server.fetch(
                GENERATE, self._body(request, rid), timeout_s=self._timeout_s, headers=_headers(request)
            )
            try:
                text = await self._calls.result_of(rid, call)
                # Parse here, one response at a time. If hundreds arrive at once, parsing all of them first would keep
                # their many objects alive, and the garbage collector would scan them.
                reply = server.read(GENERATE, text)
                output = server.parse(GENERATE, partial(parse_output, reply, request))
            except SlimeError as error:
                await self._retry_or_raise(error, rid, server, attempts)
                continue
            if server is self._server:
                self._fleet.mark_working(server)
            return output
        return GenerateOutput((), (), finish, self._weights.version)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """Stream the response in parts. There is no retry after the first part."""
        check(request, self.facts)
        if shaping_settings(request.sampling):
            yield (await self._generate_scored(request)).as_chunk
            return
        attempts, sent = Attempts(self._calls), 0
        while (finish := await self._finish_early(request, attempts)) is None:
            server, rid = self._target(request, attempts), self._new_rid()
            body, headers = {**self._body(request, rid), "stream": True}, _headers(request)
            events = self._calls.newest_events(
                rid, server.events(GENERATE, body, timeout_s=self._timeout_s, headers=headers)
            )
            try:
                async for event in events:
                    chunk = server.parse(GENERATE, partial(parse_chunk, event, request, sent))
                    sent += len(chunk.tokens)
                    if len(chunk.tokens) or chunk.finish is not None:
                        yield chunk
                return
            except SlimeError as error:
                if sent:
                    raise
                await self._retry_or_raise(error, rid, server, attempts)
            finally:
                self._calls.abandon(rid)
        yield GenerateChunk((), (), self._weights.version, finish)

    async def _generate_scored(self, request: GenerateRequest) -> GenerateOutput:
        """A response sampled from a changed distribution, then scored with the model's own log-probs."""
        attempts = Attempts(self._calls, direct=True)
        while (finish := await self._finish_early(request, attempts)) is None:
            rid = self._new_rid()
            with self._calls.gate.shared():  # both requests need the same weights
                try:
                    reply = await self._ask(self._body(request, rid), rid)
                    output = self._server.parse(GENERATE, partial(parse_output, reply, request))
                    return await self._score(request, output) if len(output.tokens) else output
                except NotAccepted as error:
                    not_accepted = error
            await self._retry_or_raise(not_accepted, rid, self._server, attempts)
        return GenerateOutput((), (), finish, self._weights.version)

    async def _score(self, request: GenerateRequest, output: GenerateOutput) -> GenerateOutput:
        for _ in range(MAX_SCORE_TRIES):
            rid = self._new_rid()
            reply = await self._ask(score_body(request, output.tokens, rid), rid)
            found = self._server.parse(GENERATE, partial(with_scores, output, reply))
            if found is not None:
                return found
            await asyncio.sleep(FIRST_S)
        raise WorkerError(f"{self._server.title} aborted a scoring request {MAX_SCORE_TRIES} times")

    async def _ask(self, body: Table, rid: str) -> Table:
        try:
            return await self._calls.result_of(rid, self._server.ask(GENERATE, body, timeout_s=self._timeout_s))
        except RequestTimeout:
            self._calls.abort_once(rid)
            raise

    def _new_rid(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def _body(self, request: GenerateRequest, rid: str) -> Table:
        return self._weights.with_cache_key(generate_body(request, rid, self.facts, self._eos))

    def _target(self, request: GenerateRequest, attempts: "Attempts") -> Server:
        router = None if attempts.direct else self._fleet.router_for(self._server, request)
        return router or self._server

    async def _finish_early(self, request: GenerateRequest, attempts: "Attempts") -> FinishReason | None:
        """Wait for the gate. Returns a finish reason if the request must not be sent."""
        if self._calls.is_blocked:
            await self._calls.wait_open()
        if attempts.aborts != self._calls.aborts:
            return FinishReason.ABORT
        if self._weights.are_lost:
            await self._weights.restore(self._server)
            self._fleet.set_version(self._server, self._weights.version)
        return None if has_room(request, self.facts) else FinishReason.LENGTH

    async def _retry_or_raise(self, error: SlimeError, rid: str, server: Server, attempts: "Attempts") -> None:
        """Pause, and return if the request may be sent again. Raises SlimeError: it may not."""
        if isinstance(error, RequestTimeout) or server is not self._server:
            self._calls.abort_once(rid)
        if server is not self._server:
            attempts.direct = True
        elif not isinstance(error, NotAccepted) or not await attempts.pause(
            BUSY_S if isinstance(error, Busy) else UNREACHABLE_S
        ):
            raise error


class Attempts:
    """State of the tries of one request."""

    def __init__(self, calls: Calls, *, direct: bool = False) -> None:
        self.aborts = calls.aborts  # Number of `abort_all` calls when the request came
        self.direct = direct  # Whether to send to the engine's own server, without the router
        self._next_s, self._waited_s = FIRST_S, 0.0

    async def pause(self, most_s: float) -> bool:
        if self._waited_s >= most_s:
            return False
        await asyncio.sleep(self._next_s)
        self._waited_s += self._next_s
        self._next_s = min(2 * self._next_s, LONGEST_S)
        return True


def _headers(request: GenerateRequest) -> dict[str, str] | None:
    return None if request.session is None else {SESSION: request.session}
