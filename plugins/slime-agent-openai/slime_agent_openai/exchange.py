"""Exchange: the bytes of one HTTP request's answer, during and after generation. Every follower gets the same bytes.

SDKs send a request again when a connection breaks, marked only by a retry count. Such a retry joins the running
exchange or gets the bytes of the finished one, so the model answers once. When the last follower leaves, the answer is
cancelled.

Example:

    exchange = Exchange(wire, lambda listener: session.reply(request, listener), describe=openai_error)
    async with exchange:                    # follow it
        async for chunk in exchange.chunks():
            await response.write(chunk)
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Self

from slime_agent_openai.errors import ApiError, nested_too_deeply
from slime_agent_openai.message import Delta, Reply
from slime_agent_openai.session import Listener
from slime_agent_openai.wires.wire import Body, Wire

log = logging.getLogger(__name__)
KEEPALIVE = b": keepalive\n\n"  # A comment that every client ignores (HTML standard, section 9.2)
KEEPALIVE_S = 10.0  # Seconds of silence before a keepalive: proxies hang up while an engine loads weights


class Exchange:
    """An answer that is generated once; it is the `Listener` of its reply if that is streamed."""

    def __init__(
        self,
        wire: Wire,
        make: Callable[[Listener | None], Awaitable[Reply]],
        describe: Callable[[ApiError], Body],
        keep: Callable[[Body], None] | None = None,
    ) -> None:
        """Start generating; `describe` writes an early error, `keep` gets the whole body, streamed or not."""
        self.status = 0  # HTTP status; 0 until it is known
        self.may_retry = False  # Whether a client may send a failed request again
        self.was_disconnected = False  # Whether the last follower's connection broke before the end
        self._wire, self._describe, self._keep = wire, describe, keep
        self._chunks: list[bytes] = []
        self._waiting: list[asyncio.Future[bool]] = []
        self._timer: asyncio.TimerHandle | None = None  # one timer for all waits: a stream has many short ones
        self._last_sent_at = 0.0
        self._followers = 0
        self._has_failed = False  # a stream that failed after its status was sent
        self._task = asyncio.create_task(self._make(make))
        self._task.add_done_callback(self._on_done)

    @property
    def streams(self) -> bool:
        return self._wire.streams and self.status == 200

    @property
    def is_reusable(self) -> bool:
        return not self._task.cancelled() and not self._has_failed

    @property
    def is_done(self) -> bool:
        return self._task.done()

    async def wait_for_status(self) -> None:
        while not self.status and not self._task.done():
            await self._wait()

    async def __aenter__(self) -> Self:
        self._followers += 1
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Stop following: the last follower to leave cancels an unfinished answer."""
        self._followers -= 1
        if not self._followers:
            await self.close()

    async def body(self) -> bytes:
        while not self._task.done():
            await self._wait()
        return b"".join(self._chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All bytes from the first; a silent stream sends keepalives."""
        place = 0
        while True:
            if place < len(self._chunks):  # all bytes available now go out at once
                ready, place = self._chunks[place:], len(self._chunks)
                yield b"".join(ready)
            if self._task.done():
                return
            if not await self._wait() and self.streams:
                yield KEEPALIVE

    async def close(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _wait(self) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        if self._timer is None:
            self._last_sent_at = loop.time()
            self._timer = loop.call_later(KEEPALIVE_S, self._check_silence, loop)
        return await waiter

    def _check_silence(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._last_sent_at + KEEPALIVE_S - loop.time()
        if left <= 0:
            self._last_sent_at, left = loop.time(), KEEPALIVE_S
            self._wake(in_time=False)
        self._timer = loop.call_later(left, self._check_silence, loop)

    def _wake(self, *, in_time: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(in_time)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wake(in_time=True)

    def begin(self, prompt_tokens: int) -> None:
        self.status = 200
        self._send(self._wire.begin(prompt_tokens))

    def add(self, delta: Delta) -> None:
        self._send(self._wire.add(delta))

    def _send(self, chunks: Iterable[bytes]) -> None:
        self._chunks += chunks
        self._last_sent_at = asyncio.get_running_loop().time()
        self._wake(in_time=True)

    async def _make(self, make: Callable[[Listener | None], Awaitable[Reply]]) -> None:
        """Generate the answer and write it in its wire's format. Raises only cancellation."""
        try:
            reply = await make(self if self._wire.streams else None)
        except ApiError as error:
            self._fail(error)
        except RecursionError:
            self._fail(nested_too_deeply())
        except Exception as error:  # usually the engine's error, which the agent also receives
            log.warning("an agent's request failed: %s: %s", type(error).__name__, error)
            self._fail(ApiError(500, f"{type(error).__name__}: {error}", code="engine_error"))
        else:
            self._end(reply)

    def _end(self, reply: Reply) -> None:
        whole = self._wire.whole(reply) if self._keep is not None or not self._wire.streams else {}
        if self._keep is not None:
            self._keep(whole)
        self.status = 200
        self._send(self._wire.end(reply) if self._wire.streams else [_json(whole)])

    def _fail(self, error: ApiError) -> None:
        self.may_retry, self._has_failed = error.retry, True
        if self.status:
            self._send(self._wire.fail(error))
            return
        self.status = error.status
        self._send([_json(self._describe(error))])


_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _json(body: Body) -> bytes:
    return _as_json(body).encode()
