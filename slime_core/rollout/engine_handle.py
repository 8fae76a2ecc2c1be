"""One engine of a pool: its requests, its last sign of life, its weights, and why it was taken out.

A request at an engine that is taken out raises `Withdrawn`: another engine must answer it. An answer made with weights
that the engine should no longer, or not yet, serve raises `Lost`.

Example:

    handle = EngineHandle(0, engine, limits)
    await handle.load(channel, 4)
    output = await handle.generate(request)
"""

import asyncio
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self, TypeAlias, cast

from slime_core.errors import WorkerError
from slime_core.roles import Engine, EngineSpec, GenerateChunk, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.rollout.engine_calls import Answers, Tell

LEAST_START_S = 600.0
"""Seconds that any engine has to start; the others serve meanwhile."""
Cause: TypeAlias = Literal["died", "hung", "garbage", "errors", "stale"]
"""Why an engine was taken out, as metrics name it."""


class Lost(WorkerError):
    """An engine must be replaced."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail.strip())
        self.cause = cause


class Withdrawn(Exception):
    """The engine of a request was taken out meanwhile; another engine must answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds engines may take."""

    silence_s: float
    """Without any answer while there are requests; also for an abort."""
    restart_s: float
    """Without any engine that serves, until the run ends."""
    probe_s: float
    """For the first answer of an engine that was restarted."""
    load_s: float
    """For loading weights, from the end of the requests that were under way."""

    @classmethod
    def of(cls, spec: EngineSpec, silence_s: float) -> Self:
        """Those that the spec of an engine states."""
        return cls(silence_s, spec.restart_s, spec.probe_s, spec.load_s)

    @property
    def start_s(self) -> float:
        """For starting an engine."""
        return max(LEAST_START_S, self.restart_s)


@dataclass(slots=True, eq=False)
class _Attempt:
    """A request at an engine."""

    task: "asyncio.Task[object]"
    work: int
    version: int
    cancelled: int
    """How often the task had been cancelled before."""
    cancels: int = 0

    def withdraw(self) -> None:
        self.cancels += 1
        self.task.cancel()

    def undo(self) -> bool:
        """Take our cancellations back. False if another caller cancelled the task too, or we did not."""
        for _ in range(self.cancels):
            self.task.uncancel()
        return self.cancels > 0 and self.task.cancelling() <= self.cancelled


@dataclass(slots=True, eq=False)
class EngineHandle:
    """One engine from its start to its end."""

    number: int
    """Its place in the pool, from 0."""
    engine: Engine
    """Checked."""
    limits: Limits
    """How long it may take."""
    lost: Lost | None = None
    """Why it was taken out; None while it serves."""
    falls: int = 0
    """How often in a row the engine of this number was taken out or failed to start."""
    since: float = 0.0
    """Loop time at which it began to serve."""
    attempts: dict[_Attempt, None] = field(default_factory=dict)
    """Its requests under way."""
    work: int = 0
    """Tokens that these may have it compute."""
    strikes: int = 0
    """Requests in a row that it failed."""
    sign: float = 0.0
    """Loop time of its last sign of life."""
    version: int = -1
    """Version of its weights."""
    newest: int = sys.maxsize
    """Version that it was last told to load."""
    answers: int = 0
    """Answers since the last metrics."""
    tokens: int = 0
    """Tokens of these."""
    _earlier: set[_Attempt] = field(default_factory=set)
    """Requests from before `load` that are still under way."""
    _loading: asyncio.Timeout | None = None

    async def generate(self, request: GenerateRequest, tell: Tell | None = None) -> GenerateOutput:
        """One answer; each part is a sign of life, and is told.

        Raises:
            Withdrawn: the engine was taken out meanwhile.
            Lost: the answer was made with the wrong weights.
        """
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"
        work = len(request.prompt) + request.sampling.max_new_tokens
        attempt = _Attempt(task, work, self.version, task.cancelling())
        if not self.attempts:
            self.sign = task.get_loop().time()
        self.attempts[attempt] = None
        self.work += work
        last: list[GenerateChunk] = []
        try:
            if tell is None:
                output = await self.engine.generate(request)
            else:
                hear = partial(self._hear, attempt, tell, last)
                output = await cast(Answers, self.engine).generate(request, hear)
        except asyncio.CancelledError:
            if attempt.undo():
                raise Withdrawn from None
            raise
        except Exception:
            self._check(attempt)
            raise
        finally:
            del self.attempts[attempt]
            self.work -= work
            self._earlier.discard(attempt)
            self._limit_load()
        self._check(attempt)
        self.strikes = 0
        self.answers += 1
        self.tokens += len(output.tokens)
        self._check_version(output.weight_version, attempt.version)
        for _, version in output.extras.versions if output.extras is not None else ():
            self._check_version(version, attempt.version)
        if tell is not None:
            tell(last[0])
        return output

    def _hear(self, attempt: _Attempt, tell: Tell, last: list[GenerateChunk], chunk: GenerateChunk) -> None:
        if self.lost is not None:
            raise Withdrawn  # whose cancellations `generate` undoes
        self._check_version(chunk.weight_version, attempt.version)
        self.sign = attempt.task.get_loop().time()
        if chunk.finish is None:
            tell(chunk)
        else:
            last.append(chunk)  # told once the whole is checked

    def _check(self, attempt: _Attempt) -> None:
        """Note a sign of life. What an engine returns or raises after it was taken out is no answer."""
        if self.lost is not None:
            attempt.undo()
            raise Withdrawn from None
        self.sign = attempt.task.get_loop().time()

    def _check_version(self, version: int, oldest: int) -> None:
        if not oldest <= version <= self.newest:
            expected = f"{oldest}" if oldest == self.newest else f"{oldest} to {self.newest}"
            raise Lost("stale", f"it answered with weights of version {version}, expected {expected}")

    async def load(self, channel: WeightChannel, version: int) -> None:
        """Load weights. The time limit starts when the requests that were under way have ended.

        Raises:
            Lost: it took too long.
            Exception: what the engine raises.
        """
        self.newest, self._earlier = version, set(self.attempts)
        try:
            async with asyncio.timeout(None) as limit:
                self._loading = limit
                self._limit_load()
                await self.engine.load_weights(channel, version)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _hung(f"load_weights({version})", self.limits.load_s) from None
        finally:
            if self.is_loading:  # requests that it held back wait for an answer from now on
                self.sign = asyncio.get_running_loop().time()
            self._loading = None
        self.version = version

    @property
    def is_loading(self) -> bool:
        """Whether it loads weights under their own time limit, and may hold requests back."""
        return self._loading is not None and self._loading.when() is not None

    def _limit_load(self) -> None:
        if self._loading is not None and not self._earlier and self._loading.when() is None:
            self._loading.reschedule(asyncio.get_running_loop().time() + self.limits.load_s)

    def withdraw(self) -> None:
        """Have all requests under way raise `Withdrawn`."""
        for attempt in tuple(self.attempts):
            attempt.withdraw()

    def silent_for(self, now: float) -> float:
        """Seconds for which it has answered none of its requests."""
        return now - self.sign if self.attempts and not self.is_loading else 0.0


async def within_s(seconds: float, call: Awaitable[object], what: str) -> None:
    """Await a call of an engine.

    Raises:
        Lost: it took too long.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise _hung(what, seconds) from None


def _hung(what: str, seconds: float) -> Lost:
    return Lost("hung", f"it did not answer {what} within {seconds:g} s")
