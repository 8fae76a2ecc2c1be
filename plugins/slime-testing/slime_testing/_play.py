"""Play: a started engine and what the contract does with it, each call within its time.

Example:

    output = await play.ask(SamplingParams(16), seed=3)
    running = await play.keep_busy(200)
    await play.limited(play.engine.abort(), "abort()")
    outputs = await play.ends(running)
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar, cast

from slime_core.roles import (
    Engine,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
)
from slime_testing.held import SETTLE_S

ResultT = TypeVar("ResultT")

BUSY = 32
"""Requests that keep an engine busy."""
LEAD_S = 0.01
"""How long they have to get going, where nobody can tell whether one does."""
POLL_S = 0.001
"""Seconds between two looks for one that does."""


@dataclass(frozen=True, slots=True)
class Play:
    """An engine that serves version 0."""

    engine: Engine
    """The engine."""
    prompts: Sequence[Sequence[int]]
    """Prompts that it takes."""
    limit_s: float
    """How long a call may take."""
    running: Callable[[], int | None] = lambda: None
    """How many requests run, where the author can tell."""

    async def ask(self, sampling: SamplingParams, prompt: int = 0, seed: int = 0) -> GenerateOutput:
        """Generate one response."""
        return await self.generate(self.prompts[prompt], sampling, seed)

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams, seed: int = 0) -> GenerateOutput:
        """Generate one response to any prompt."""
        return await self.answer(GenerateRequest(prompt, sampling, seed))

    async def answer(self, request: GenerateRequest) -> GenerateOutput:
        """Generate what a request asks for."""
        return await self.limited(self.engine.generate(request), "generate()")

    def open_stream(self, sampling: SamplingParams, seed: int = 0) -> AsyncGenerator[GenerateChunk, None]:
        """One response in parts, of an engine that streams."""
        engine = cast(StreamsTokens, self.engine)
        return engine.stream(GenerateRequest(self.prompts[0], sampling, seed))

    async def stream(self, sampling: SamplingParams, seed: int = 0) -> list[GenerateChunk]:
        """All parts of one response."""

        async def collect() -> list[GenerateChunk]:
            async with aclosing(self.open_stream(sampling, seed)) as chunks:
                return [chunk async for chunk in chunks]

        return await self.limited(collect(), "stream()")

    async def keep_busy(self, tokens: int) -> list[asyncio.Task[GenerateOutput]]:
        """Put requests of so many tokens under way."""
        asked = [asyncio.create_task(self.ask(SamplingParams(tokens), seed=seed)) for seed in range(BUSY)]
        await self._get_going(asked)
        return asked

    async def keep_streaming(self, tokens: int) -> list[asyncio.Task[list[GenerateChunk]]]:
        """Put streams of so many tokens under way."""
        asked = [asyncio.create_task(self.stream(SamplingParams(tokens), seed)) for seed in range(BUSY)]
        await self._get_going(asked)
        return asked

    async def _get_going(self, asked: Sequence[asyncio.Task[ResultT]]) -> None:
        """Wait until one of them runs or has ended, where the author can tell that; else for a moment."""
        if self.running() is None:
            await asyncio.sleep(LEAD_S)
            return
        until = time.monotonic() + self.limit_s
        while not self.running() and not any(task.done() for task in asked):
            await asyncio.sleep(POLL_S)
            if time.monotonic() > until:
                raise AssertionError(f"{len(asked)} requests were asked, and none runs after {self.limit_s:g} s")

    async def ends(self, running: Sequence[asyncio.Task[GenerateOutput]]) -> list[GenerateOutput | BaseException]:
        """What each of them returned or raised; one that was cancelled by nobody has raised CancelledError."""
        return await asyncio.gather(*running, return_exceptions=True)

    async def settled(self, left: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """What `left` still finds when it finds nothing any more, or when `SETTLE_S` is over."""
        until = time.monotonic() + SETTLE_S
        while any(found := left()) and time.monotonic() < until:  # noqa: ASYNC110  # nothing tells when
            await asyncio.sleep(0.02)
        return found

    async def limited(self, call: Awaitable[ResultT], what: str) -> ResultT:
        """Await a call of the engine's.

        Raises:
            AssertionError: it took too long.
        """
        try:
            async with asyncio.timeout(self.limit_s) as limit:
                return await call
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"{what} did not return in {self.limit_s:g} s") from None
            raise
