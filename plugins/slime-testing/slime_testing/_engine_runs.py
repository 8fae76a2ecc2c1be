"""Base of the engine contract: the author's settings, and started engines with weights of version 0."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar, cast

from slime_core.roles import (
    Engine,
    EngineSetup,
    EngineSpec,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
    WeightChannel,
)
from slime_testing.calling import SETTLE_S
from slime_testing.contract import CheckInfo, CheckStatus
from slime_testing.role import RoleContract

ResultT = TypeVar("ResultT")

BUSY = 32
"""Number of requests that keep an engine busy."""
LEAD_S = 0.01
"""Seconds to wait for requests to start, if the contract does not define `running`."""
POLL_S = 0.001
"""Seconds between two calls of `running`."""


@dataclass(frozen=True, slots=True)
class Client:
    """An engine with weights of version 0, and requests to it."""

    engine: Engine
    prompts: Sequence[Sequence[int]]
    limit_s: float
    running: Callable[[], int | None] = lambda: None

    async def request(self, sampling: SamplingParams, prompt: int = 0, seed: int = 0) -> GenerateOutput:
        return await self.generate(self.prompts[prompt], sampling, seed)

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams, seed: int = 0) -> GenerateOutput:
        return await self.send(GenerateRequest(prompt, sampling, seed))

    async def send(self, request: GenerateRequest) -> GenerateOutput:
        return await self.with_timeout(self.engine.generate(request), "generate()")

    def open_stream(self, sampling: SamplingParams, seed: int = 0) -> AsyncGenerator[GenerateChunk, None]:
        engine = cast(StreamsTokens, self.engine)
        return engine.stream(GenerateRequest(self.prompts[0], sampling, seed))

    async def stream(self, sampling: SamplingParams, seed: int = 0) -> list[GenerateChunk]:
        async def collect() -> list[GenerateChunk]:
            async with aclosing(self.open_stream(sampling, seed)) as chunks:
                return [chunk async for chunk in chunks]

        return await self.with_timeout(collect(), "stream()")

    async def keep_busy(self, tokens: int) -> list[asyncio.Task[GenerateOutput]]:
        requests = [asyncio.create_task(self.request(SamplingParams(tokens), seed=seed)) for seed in range(BUSY)]
        await self._wait_until_running(requests)
        return requests

    async def keep_streaming(self, tokens: int) -> list[asyncio.Task[list[GenerateChunk]]]:
        requests = [asyncio.create_task(self.stream(SamplingParams(tokens), seed)) for seed in range(BUSY)]
        await self._wait_until_running(requests)
        return requests

    async def _wait_until_running(self, requests: Sequence[asyncio.Task[ResultT]]) -> None:
        if self.running() is None:
            await asyncio.sleep(LEAD_S)
            return
        until = time.monotonic() + self.limit_s
        while not self.running() and not any(task.done() for task in requests):
            await asyncio.sleep(POLL_S)
            if time.monotonic() > until:
                raise AssertionError(f"none of {len(requests)} requests runs {self.limit_s:g} s after they were sent")

    async def results(self, running: Sequence[asyncio.Task[GenerateOutput]]) -> list[GenerateOutput | BaseException]:
        """The result or error of each request. A CancelledError comes from the engine, not from the check."""
        return await asyncio.gather(*running, return_exceptions=True)

    async def drain(self, left: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """The result of `left` when all its counts are 0, or after `SETTLE_S`."""
        until = time.monotonic() + SETTLE_S
        while any(found := left()) and time.monotonic() < until:  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0.02)
        return found

    async def with_timeout(self, call: Awaitable[ResultT], what: str) -> ResultT:
        """Await a call of the engine.

        Raises:
            AssertionError: the call exceeded `limit_s`.
        """
        try:
            async with asyncio.timeout(self.limit_s) as limit:
                return await call
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"{what} did not return in {self.limit_s:g} s") from None
            raise


@dataclass(slots=True)
class ServedEngine:
    setup: EngineSetup
    client: Client
    publish: Callable[[EngineSetup, int], WeightChannel]
    version: int | None = None

    async def start(self) -> None:
        await self.client.with_timeout(self.client.engine.start(), "start()")
        await self.load(0)

    async def load(self, version: int) -> None:
        channel = await asyncio.to_thread(self.publish, self.setup, version)
        await self.client.with_timeout(self.client.engine.load_weights(channel, version), "load_weights()")
        self.version = version

    async def close(self) -> None:
        await self.client.with_timeout(self.client.engine.close(), "close()")
        await self.setup.launcher.close()


@dataclass(slots=True)
class SharedEngine:
    """An engine that several checks share, with its own event loop."""

    serve: Callable[[Path], ServedEngine]
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _scratch: "tempfile.TemporaryDirectory[str]" = field(default_factory=tempfile.TemporaryDirectory)
    _served: ServedEngine | None = None

    def run(self, use: Callable[[ServedEngine], Coroutine[None, None, ResultT]]) -> ResultT:
        async def using() -> ResultT:
            if self._served is None:
                self._served = self.serve(Path(self._scratch.name))
                await self._served.start()
            elif self._served.version != 0:
                await self._served.load(0)
            return await use(self._served)

        return self._runner.run(using())

    def end(self) -> None:
        served, self._served = self._served, None
        try:
            if served is not None:
                self._runner.run(served.close())
        finally:
            self._runner.close()
            self._scratch.cleanup()


Load: TypeAlias = Callable[[int], Coroutine[None, None, None]]

SAMPLED = SamplingParams(max_new_tokens=16)
GREEDY = SamplingParams(max_new_tokens=16, temperature=0.0)
ONE = SamplingParams(max_new_tokens=1, temperature=0.0)
SAME_LOG_PROB = 1e-3
"""Log-probs of one version differ by less than this, and log-probs of two versions by more."""


class EngineRuns(RoleContract[EngineSpec]):
    """Base of the engine contract: attributes and methods that the author sets, and engines for the checks."""

    kind = EngineSpec
    prompts: ClassVar[tuple[Sequence[int], Sequence[int]]] = ((5, 6, 7), (9, 10))
    """Token ids of two prompts that the model accepts, each with more than one likely next token."""
    busy_tokens: ClassVar[int] = 200
    """A token budget that keeps the engine busy for some tens of milliseconds."""
    too_long: ClassVar[int | None] = None
    """Number of tokens of a prompt that is too long for the model; None: no limit."""
    deterministic: ClassVar[bool] = True
    """Whether the same request and seed always give the same tokens, even while other requests run."""
    limit_s: ClassVar[float] = 60.0
    """Seconds that one call may take."""
    fresh: ClassVar[bool] = True
    """Whether each check starts an engine. Set False if a start is slow: the checks then share an engine, except for
    checks that close it. The shared engine loads version 0 again after 1, with a new call of `publish` each time."""
    _shared: ClassVar[SharedEngine | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._shared = None

    @classmethod
    def _record(cls, info: CheckInfo, status: CheckStatus, detail: str) -> None:
        super()._record(info, status, detail)
        if status is CheckStatus.FAILED:
            cls.teardown_class()  # a failed check may leave the engine in any state

    @classmethod
    def teardown_class(cls) -> None:
        """Close the shared engine, if any."""
        shared, cls._shared = cls._shared, None
        if shared is not None:
            shared.end()

    def make_setup(self, scratch: Path) -> EngineSetup:
        """Argument of the factory, with a model, its end tokens and a launcher. The contract closes the launcher."""
        return self.author_value("make_setup", cast(EngineSetup | None, None))

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        """Publish a version of the weights, 0 or 1, as a trainer does. The two must give different log-probs."""
        return self.author_value("publish", cast(WeightChannel | None, None))

    def invalid_weights(self, setup: EngineSetup) -> WeightChannel | None:
        """Published weights that the engine cannot load; None if there are none.

        The default is version 1 with an unknown name for its first tensor.
        """
        channel = self.publish(setup, 1)
        slots = list(channel.slots)
        return replace(channel, slots=(replace(slots[0], name="no.such.weight"), *slots[1:])) if slots else None

    def running(self, engine: Engine) -> int | None:
        """Number of requests that run in the engine's workers or servers; None if unknown.

        Checks wait until a request runs, or for ten milliseconds if the number is unknown.
        """
        return None

    async def _cancelled(
        self, client: Client, requests: Collection[asyncio.Task[ResultT]], before: Set[asyncio.Task[object]]
    ) -> tuple[int, int, int]:
        for task in requests:
            task.cancel()
        _, pending = await asyncio.wait(requests, timeout=SETTLE_S)
        tasks, running = await client.drain(
            lambda: (len(asyncio.all_tasks() - before), self.running(client.engine) or 0)
        )
        return len(pending), tasks, running

    def _build(self, setup: EngineSetup) -> Engine:
        return self.spec.factory(self.make_settings(), setup)

    def _run(
        self, use: Callable[[Client], Coroutine[None, None, ResultT]], *, start: bool = True, fresh: bool = False
    ) -> ResultT:
        return self._run_served(lambda served: use(served.client), start=start, fresh=fresh)

    def _run_with_weights(self, use: Callable[[Client, Load], Coroutine[None, None, ResultT]]) -> ResultT:
        return self._run_served(lambda served: use(served.client, served.load))

    def _run_served(
        self, use: Callable[[ServedEngine], Coroutine[None, None, ResultT]], *, start: bool = True, fresh: bool = False
    ) -> ResultT:
        if self.fresh or fresh or not start:
            return self._run_fresh(use, start=start)
        contract = type(self)
        shared = contract._shared = contract._shared or SharedEngine(self._serve_engine)
        return shared.run(use)

    def _run_fresh(self, use: Callable[[ServedEngine], Coroutine[None, None, ResultT]], *, start: bool) -> ResultT:
        async def main(scratch: Path) -> ResultT:
            served = self._serve_engine(scratch)
            try:
                if start:
                    await served.start()
                return await use(served)
            finally:
                await served.close()

        with tempfile.TemporaryDirectory() as scratch:
            return asyncio.run(main(Path(scratch)))

    def _serve_engine(self, scratch: Path) -> ServedEngine:
        setup = self.make_setup(scratch)
        engine = self._build(setup)
        return ServedEngine(
            setup, Client(engine, self.prompts, self.limit_s, lambda: self.running(engine)), self.publish
        )
