"""Bars 4 and 5: how soon a client hears of the engine's first tokens, and the engine of a client that went away."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from agent_bars.dialogs import TOOL, answers, tokenizer_of
from agent_bars.engines import Tell, context_of
from slime_agent_openai.bridge import Bridge
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, SamplingParams

TIMES, AT_ONCE = 200, 8
PART = 4
"""Tokens that the engine tells at a time."""
REST_S = 0.02
"""Seconds between two parts."""


class Telling:
    """An engine that tells parts of an answer, and notes when it told the first and when it was given up."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        self._ids = answers(tokenizer, "json", "text with calls")[0]
        self.told_at, self.left_at = 0.0, 0.0
        self.context = context_of(self.answer, tokenizer)

    async def answer(self, prompt: Sequence[int], sampling: SamplingParams | None, on_chunk: Tell) -> GenerateOutput:
        """One answer, in parts if anybody listens."""
        output = GenerateOutput(self._ids, [-0.5] * len(self._ids), FinishReason.STOP, 0)
        try:
            for place in range(0, len(self._ids), PART):
                await asyncio.sleep(REST_S)
                if on_chunk is not None:
                    self.told_at = self.told_at or time.perf_counter()
                    ids = self._ids[place : place + PART]
                    last = FinishReason.STOP if place + PART >= len(self._ids) else None
                    on_chunk(GenerateChunk(ids, [-0.5] * len(ids), 0, last))
        except asyncio.CancelledError:
            self.left_at = time.perf_counter()
            raise
        return output


class Heard:
    """What a client heard of a streamed answer."""

    def __init__(self) -> None:
        self.text, self.arguments, self.first_at = "", "", 0.0

    def line(self, line: bytes) -> None:
        """Take one in."""
        if not line.startswith(b"data: {"):
            return
        for choice in json.loads(line.removeprefix(b"data: "))["choices"]:
            delta = choice["delta"]
            self.text += delta.get("content") or ""
            self.arguments += "".join(call["function"].get("arguments") or "" for call in delta.get("tool_calls") or [])
        if (self.text or self.arguments) and not self.first_at:
            self.first_at = time.perf_counter()


async def heard(gateway: Gateway, tokenizer: HfTokenizer, http: aiohttp.ClientSession, bodies: list[str]) -> float:
    """Seconds from the engine's first tokens to the client's; what was said goes into `bodies`, streamed and not."""
    bridge = Bridge(tokenizer)
    for stream in (True, False):
        engine, told = Telling(tokenizer), Heard()
        session = Session(engine.context, SessionLimits(), bridge, HERMES)
        async with (
            gateway.open_session(session) as url,
            http.post(f"{url}/v1/chat/completions", json=_asked(stream)) as made,
        ):
            if stream:
                async for line in made.content:
                    told.line(line)
                bodies.append(told.text + told.arguments)
                after = told.first_at - engine.told_at
            else:
                said = (await made.json())["choices"][0]["message"]
                bodies.append((said["content"] or "") + said["tool_calls"][0]["function"]["arguments"])
    return after


async def left(gateway: Gateway, tokenizer: HfTokenizer, http: aiohttp.ClientSession) -> float:
    """Seconds from a client's going away to the engine's hearing of it."""
    engine = Telling(tokenizer)
    session = Session(engine.context, SessionLimits(), Bridge(tokenizer), HERMES)
    async with gateway.open_session(session) as url:
        made = await http.post(f"{url}/v1/chat/completions", json=_asked(True))
        await made.content.readany()
        made.close()
        gone_at = time.perf_counter()
        while not engine.left_at:
            await asyncio.sleep(0.0005)
            if time.perf_counter() > gone_at + 5:
                raise SystemExit("the engine has not heard of a client that went away 5 s ago")
    return engine.left_at - gone_at


def _asked(stream: bool) -> dict[str, object]:
    asked = [{"role": "user", "content": "How long is the river?"}]
    return {"model": "policy", "messages": asked, "tools": [TOOL], "stream": stream}


async def measured() -> dict[str, float]:
    """Milliseconds of both, p50 and p99."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_of("json", Path(folder))
        gateway, bodies = Gateway(), list[str]()
        await gateway.start()
        waits = asyncio.Semaphore(AT_ONCE)
        try:
            async with aiohttp.ClientSession() as http:

                async def one(what: str) -> float:
                    async with waits:
                        return await (
                            heard(gateway, tokenizer, http, bodies) if what else left(gateway, tokenizer, http)
                        )

                firsts = await asyncio.gather(*(one("heard") for _ in range(TIMES)))
                leaves = await asyncio.gather(*(one("") for _ in range(TIMES)))
        finally:
            await gateway.close()
    return {
        "different_texts": len(set(bodies)) - 1,
        **{f"first_delta_{name}": value for name, value in _quantiles(firsts).items()},
        **{f"disconnect_{name}": value for name, value in _quantiles(leaves).items()},
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    made = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(made[49] * 1e3, 2), "p99_ms": round(made[98] * 1e3, 2)}
