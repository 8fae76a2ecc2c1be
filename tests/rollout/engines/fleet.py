"""Engines that fail as configured, on a virtual clock."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import WorkerError
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import EnginePool, Limits
from slime_core.sample import GroupId
from slime_simulate.clock import VirtualLoop

T = TypeVar("T")
SECOND_A_TOKEN = 0.05
NOWHERE = WeightChannel("nowhere", ())
Behaviour = Callable[["Scripted", GenerateRequest], Awaitable[GenerateOutput]]
StreamBehaviour = Callable[["Streaming", GenerateRequest], AsyncGenerator[GenerateChunk, None]]


class Scripted:
    """Makes tokens that are a function of the seed, in an orderly time, unless its fleet says otherwise."""

    def __init__(self, fleet: "Fleet", number: int) -> None:
        self.fleet, self.number = fleet, number
        self.life = fleet.built[number]
        self.version = -1
        self.asked: list[GenerateRequest] = []
        self.running = 0
        self.closed = False
        self.interrupted = asyncio.Event()
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        if not self.life and self.number in self.fleet.fails_to_start:
            raise WorkerError(f"engine {self.number} finds no port")
        if self.life and self.number in self.fleet.never_again:
            raise WorkerError(f"engine {self.number} has no machine any more")
        if self.fleet.starts is not None:
            await self.fleet.starts(self)

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        if self.number in self.fleet.unloadable:
            raise WorkerError(f"worker of engine {self.number} died")
        if self.fleet.loads is not None and version:
            await self.fleet.loads(self)
        self.version = version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.asked.append(request)
        self.running += 1
        try:
            bad = self.fleet.bad.get(self.number)
            if bad is not None and (self.life == 0 or self.number in self.fleet.incurable):
                return await bad(self, request)
            if self.fleet.everywhere is not None:
                return await self.fleet.everywhere(self, request)
            return await self.answer(request)
        finally:
            self.running -= 1

    async def answer(self, request: GenerateRequest, pace: float = SECOND_A_TOKEN) -> GenerateOutput:
        tokens = tokens_of(request)
        try:
            async with asyncio.timeout(pace * len(tokens)):
                await self.interrupted.wait()
        except TimeoutError:
            return GenerateOutput(tokens, [-0.5] * len(tokens), FinishReason.STOP, self.version)
        return GenerateOutput((), (), FinishReason.ABORT, self.version)

    async def abort(self) -> None:
        self.interrupted.set()
        await asyncio.sleep(0)
        self.interrupted = asyncio.Event()

    async def watch(self) -> None:
        if self.life or self.number not in self.fleet.dies_idle_s:
            await self.stopped.wait()
            raise WorkerError("killed by another process")
        await asyncio.sleep(self.fleet.dies_idle_s[self.number])
        raise WorkerError(f"engine {self.number} died (killed by SIGKILL)")

    async def close(self) -> None:
        self.closed = True


class Streaming(Scripted):
    """The same, a token at a time."""

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        self.asked.append(request)
        self.running += 1
        try:
            bad = self.fleet.bad_streams.get(self.number) if self.life == 0 else None
            async with aclosing((bad or Streaming.parts)(self, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.running -= 1

    async def parts(
        self, request: GenerateRequest, pace: float = SECOND_A_TOKEN
    ) -> AsyncGenerator[GenerateChunk, None]:
        *tokens, last = tokens_of(request)
        interrupted = self.interrupted
        for token in tokens:
            await asyncio.sleep(pace)
            if interrupted.is_set():
                yield GenerateChunk((), (), self.version, FinishReason.ABORT)
                return
            yield GenerateChunk([token], [-0.5], self.version)
        await asyncio.sleep(pace)
        yield GenerateChunk([last], [-0.5], self.version, FinishReason.STOP)


def tokens_of(request: GenerateRequest) -> list[int]:
    """4 to 16 tokens, as far as the budget allows."""
    count = min(4 + request.seed % 13, request.sampling.max_new_tokens)
    return [3 + (request.seed * 31 + place) % 90 for place in range(count)]


@dataclass
class Fleet:
    """All engines of a pool."""

    count: int
    bad: dict[int, Behaviour] = field(default_factory=dict)
    """By number, until it is restarted."""
    incurable: frozenset[int] = frozenset()
    """Numbers that stay bad."""
    fails_to_start: frozenset[int] = frozenset()
    """Numbers that do not start the first time."""
    never_again: frozenset[int] = frozenset()
    """Numbers that cannot be restarted."""
    unloadable: frozenset[int] = frozenset()
    """Numbers that cannot load weights."""
    starts: Callable[[Scripted], Awaitable[None]] | None = None
    """What each does when it is started."""
    loads: Callable[[Scripted], Awaitable[None]] | None = None
    """What each does before it switches to a version but the first."""
    everywhere: Behaviour | None = None
    """What all that are not bad do."""
    bad_streams: dict[int, StreamBehaviour] = field(default_factory=dict)
    """By number, until it is restarted."""
    streams: bool = False
    """Whether they can give an answer in parts."""
    dies_idle_s: dict[int, float] = field(default_factory=dict)
    """Seconds after which a number dies with nothing to do, in its first life."""
    silence_s: float = 300.0
    restart_s: float = 40.0
    probe_s: float = 30.0
    load_s: float = 100.0
    engines: list[Scripted] = field(default_factory=list)
    """In the order in which they were built."""
    built: Counter[int] = field(default_factory=Counter)
    """How often each number was."""

    def make(self, number: int) -> BuiltChoice[Engine]:
        engine = Streaming(self, number) if self.streams else Scripted(self, number)
        self.built[number] += 1
        self.engines.append(engine)
        return BuiltChoice("scripted", "tests", engine)

    def play(self, use: Callable[[EnginePool], Coroutine[object, object, T]]) -> T:
        """Use a pool that serves version 0; what it leaves is an error."""

        async def main() -> T:
            probe = GenerateRequest([2], SamplingParams(1), seed=0)
            limits = Limits(self.silence_s, self.restart_s, self.probe_s, self.load_s)
            pool = EnginePool(self.make, self.count, limits, probe=probe)
            try:
                await pool.start()
                await pool.load_weights(NOWHERE, 0)
                return await use(pool)
            finally:
                await pool.close()
                assert all(engine.closed for engine in self.engines)
                await asyncio.sleep(0)
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert all(engine.running == 0 for engine in self.engines)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())

    def asked(self, number: int) -> int:
        """Requests that the engine of this number was asked, in all its lives."""
        return sum(len(engine.asked) for engine in self.engines if engine.number == number)


def make_request(seed: int, group: int | None = None, budget: int = 16) -> GenerateRequest:
    row = seed if group is None else group
    return GenerateRequest([5, row], SamplingParams(budget), seed, None if group is None else GroupId("x", 0, row, row))
