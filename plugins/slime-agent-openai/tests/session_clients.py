"""Clients that pass a random agent's requests to a session, directly or over HTTP, with faults."""

import asyncio
import contextlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
from chat_bodies import body_of, reply_of
from random_agent import Answer, Asked
from random_engine import RandomEngine

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import CallDelta, Delta, ReasoningDelta, Reply, Request, TextDelta
from slime_agent_openai.session import Session


@dataclass(slots=True)
class DirectClient:
    """Asks the session itself."""

    session: Session
    engine: RandomEngine
    faults: Sequence[str] = (*("disconnect", "engine error") * 10, "interrupt")
    streamed: int = 0

    async def ask(self, asked: Asked) -> Answer:
        """Ask; after a fault once more, as SDKs do."""
        if asked.fault == "disconnect":
            await self._disconnected(asked)
        elif asked.fault == "engine error":
            await self._broken(asked)
        elif asked.fault == "interrupt":  # the run needs the engine
            self.engine.fates.append("interrupted")
        handle = self.session.new_id("resp")
        self.streamed += 1
        listener = CheckedListener() if self.streamed % 2 else None
        reply = await self.session.reply(request_of(asked, handle), listener)
        if listener is not None:
            listener.require(reply)
        made = next(made for made in reversed(self.engine.log) if made.output.tokens is reply.tokens)
        return Answer(reply.message, handle, made)

    async def _disconnected(self, asked: Asked) -> None:
        """Goes away in the middle."""
        self.engine.fates.append("hang")
        self.engine.hanging.clear()
        asking = asyncio.create_task(self.session.reply(request_of(asked, "gone"), CheckedListener()))
        waiting = asyncio.create_task(self.engine.hanging.wait())
        await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if asking.done():  # it was refused before the engine heard of it
            self.engine.fates.clear()
        asking.cancel()
        await asyncio.wait({asking, waiting})
        assert asking.cancelled() or isinstance(asking.exception(), ApiError)

    async def _broken(self, asked: Asked) -> None:
        """Meets an engine that fails."""
        self.engine.fates.append("broken")
        try:
            await self.session.reply(request_of(asked, "broken"), None)
        except RuntimeError:
            return
        except ApiError:
            self.engine.fates.clear()
            return
        raise AssertionError("the engine's error was swallowed")


def request_of(asked: Asked, handle: str) -> Request:
    """As a wire reads it."""
    if asked.by_id and asked.base is not None:
        after = asked.base.answer.handle
        return Request(asked.new, (handle,), asked.tools, after, max_tokens=asked.max_tokens, agent=asked.agent)
    return Request(asked.messages, (handle,), asked.tools, max_tokens=asked.max_tokens, agent=asked.agent)


@dataclass(slots=True)
class CheckedListener:
    """A listener that holds what it was told against the whole."""

    prompt_tokens: int = 0
    deltas: list[Delta] = field(default_factory=list)

    def begin(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens

    def add(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def require(self, reply: Reply) -> None:
        """All that was told is the reply."""
        said = reply.message
        assert self.prompt_tokens == reply.prompt_tokens
        assert "".join(each.text for each in self.deltas if isinstance(each, TextDelta)) == said.text
        assert "".join(each.text for each in self.deltas if isinstance(each, ReasoningDelta)) == said.reasoning
        assert tuple(each.call for each in self.deltas if isinstance(each, CallDelta)) == said.calls


@dataclass(slots=True)
class HttpClient:
    """Asks the gateway, streamed and not."""

    url: str
    http: aiohttp.ClientSession
    engine: RandomEngine
    draw: random.Random
    luck: random.Random  # Where connections end
    faults: Sequence[str] = ("disconnect", "engine error", "sent twice", "cut off", "sent again")

    async def ask(self, asked: Asked) -> Answer:
        """Ask, with what happens on the way; after a fault once more, as SDKs do."""
        stream = self.draw.random() < 0.5
        body = json.dumps(body_of(asked, stream=stream)).encode()
        headers = {"x-claude-code-agent-id": asked.agent} if asked.agent else {}
        again = headers | {"x-stainless-retry-count": "1"}
        match asked.fault:
            case "disconnect":
                await self._disconnected(body, headers)
            case "engine error":
                self.engine.fates.append("broken")
                with contextlib.suppress(ApiError):
                    await self._post(body, headers)
                    assert stream  # of a stream that breaks off the status has been told
                self.engine.fates.clear()
            case "sent twice":
                await self._sent_twice(body, headers, again)
            case "cut off":
                await self._cut_off(body, headers)
            case "sent again":
                first = await self._post(body, headers)
                assert first == await self._post(body, again)
        raw = await self._post(body, again if asked.fault else headers)
        handle, message = reply_of(raw, stream=stream)
        return Answer(message, handle)

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        async with self.http.post(f"{self.url}/v1/chat/completions", data=body, headers=headers) as answer:
            raw = await answer.read()
            if answer.status == 200:
                return raw
            error = json.loads(raw)["error"]
            raise ApiError(answer.status, error["message"], code=error["code"])

    async def _sent_twice(self, body: bytes, headers: Mapping[str, str], again: Mapping[str, str]) -> None:
        """Sends the same once more while the first is under way."""
        self.engine.asked.clear()
        first = asyncio.create_task(self._post(body, headers))
        asked = asyncio.create_task(self.engine.asked.wait())
        await asyncio.wait({first, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        both = await asyncio.gather(first, self._post(body, again), return_exceptions=True)
        if isinstance(both[0], ApiError):
            raise both[0]
        assert both[0] == both[1]

    async def _disconnected(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Goes away while the engine is at work."""
        self.engine.fates.append("hang")
        self.engine.hanging.clear()
        self.engine.gave_up.clear()
        asking = asyncio.create_task(self._post(body, headers))
        waiting = asyncio.create_task(self.engine.hanging.wait())
        await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if asking.done():  # it was refused before the engine heard of it
            self.engine.fates.clear()
        asking.cancel()
        await asyncio.wait({asking, waiting})
        if asking.cancelled():
            await self.engine.gave_up.wait()

    async def _cut_off(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Reads some bytes, and goes away."""
        async with self.http.post(f"{self.url}/v1/chat/completions", data=body, headers=headers) as answer:
            await answer.content.read(self.luck.randint(0, 300))
            answer.close()
