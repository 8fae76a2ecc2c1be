"""Member: one engine from its start to its end: what it is at, what is held against it.

An engine that is quarantined never serves again; the one that is started in its place is another member.
"""

import asyncio
import enum
import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field

from slime_core.roles import Engine, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.rollout.engines._speed import Speed
from slime_core.rollout.parts import parts_of


class Cause(enum.Enum):
    """Why an engine serves no more; the values are those of the metrics."""

    DIED = "died"
    """It said WorkerError."""
    HUNG = "hung"
    """It had work, or was to do something else, and was silent for too long."""
    SLOW = "slow"
    """It is many times slower than its peers."""
    GARBAGE = "garbage"
    """An answer broke the contract (NaN, wrong lengths), and another engine answered the same request well."""
    ERRORS = "errors"
    """It raised several times in a row where another engine answered."""
    STALE = "stale"
    """It answered with weights that it was told to leave, or was never told of."""


DEADLY = frozenset({Cause.DIED, Cause.HUNG})
"""What a request can do to an engine."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why an engine is not asked any more."""

    cause: Cause
    """The kind of reason, as metrics count it."""
    detail: str
    """In words."""


class Withdrawn(Exception):
    """The engine of a request was quarantined; it is to be asked elsewhere."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A request at an engine."""

    task: "asyncio.Task[object]"
    """Who waits for it."""
    began: float
    """Loop time."""
    work: int
    """Tokens that it may have the engine compute."""
    budget: int
    """Of these, the new ones."""
    suspect: bool
    """Whether an engine died or hung over it before."""
    version: int
    """The engine's weights when it began."""
    cancelled: int
    """How often the task was cancelled before."""
    cancels: int = 0
    """How often it was withdrawn."""

    def withdraw(self) -> None:
        """Have `Member.generate` raise Withdrawn; again and again for an engine that cleans up for long."""
        self.cancels += 1
        self.task.cancel()

    def undo(self) -> bool:
        """Take the cancellations back; whether nobody else cancelled the task."""
        for _ in range(self.cancels):
            self.task.uncancel()
        return self.cancels > 0 and self.task.cancelling() <= self.cancelled


@dataclass(slots=True, eq=False)
class Member:
    """One engine that serves, or did."""

    number: int
    """Its place, from 0."""
    engine: Engine
    """Checked."""
    quarantine: Quarantine | None = None
    """Why it serves no more."""
    attempts: dict[Attempt, None] = field(default_factory=dict)
    """What it is at, oldest first."""
    work: int = 0
    """Tokens of these."""
    doubts: int = 0
    """Requests that it failed and that are asked elsewhere now."""
    suspects: int = 0
    """Requests under way that an engine may have died of."""
    strikes: int = 0
    """Requests in a row that it failed and another answered."""
    sign: float = 0.0
    """Loop time of its last sign of life."""
    oldest: int = -1
    """Version of the weights that it was last switched to."""
    newest: int = sys.maxsize
    """Version that it was last told to switch to."""
    speed: Speed = field(default_factory=Speed)
    """How fast it is."""
    answers: int = 0
    """Answers since the last metrics."""
    tokens: int = 0
    """Tokens of these."""
    is_switching: bool = False
    """Whether nothing keeps it from loading weights any more, which has a limit of its own."""
    _busy: "asyncio.Future[None] | None" = None
    """Done when it is at nothing, where somebody waits for that."""
    _before: set[Attempt] = field(default_factory=set)
    """What it was at when it was told to load weights."""
    _when_free: Callable[[], None] | None = None
    """Told when all of that has ended."""

    async def generate(self, request: GenerateRequest, *, suspect: bool = False) -> GenerateOutput:
        """One answer.

        Raises:
            Withdrawn: the engine was quarantined meanwhile.
        """
        return await self._made(request, self.engine.generate(request), suspect)

    async def read(
        self, request: GenerateRequest, tell: Callable[[GenerateChunk], None], *, suspect: bool = False
    ) -> GenerateOutput:
        """One answer, `tell` told of its parts as they come; each of them is a sign of life.

        Raises:
            Withdrawn: the engine was quarantined meanwhile.
        """
        return await self._made(request, self._read(request, tell), suspect)

    async def _read(self, request: GenerateRequest, tell: Callable[[GenerateChunk], None]) -> GenerateOutput:
        loop, oldest = asyncio.get_running_loop(), self.oldest
        chunks: list[GenerateChunk] = []
        async with aclosing(parts_of(self.engine, request)) as parts:
            async for chunk in parts:
                if self.quarantine is not None:
                    raise Withdrawn
                self._check_version(chunk.weight_version, oldest)
                self.sign = loop.time()
                chunks.append(chunk)
                tell(chunk)
        return GenerateOutput.joined(chunks)

    async def _made(
        self, request: GenerateRequest, answering: Coroutine[object, object, GenerateOutput], suspect: bool
    ) -> GenerateOutput:
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"
        now = task.get_loop().time()
        budget = request.sampling.max_new_tokens
        attempt = Attempt(task, now, len(request.prompt) + budget, budget, suspect, self.oldest, task.cancelling())
        self._begin(attempt)
        try:
            output = await answering
        except asyncio.CancelledError:
            if attempt.undo():
                raise Withdrawn from None
            raise
        except Exception:
            self._check(attempt)
            self.sign = task.get_loop().time()
            raise
        finally:
            self._end(attempt)
        self._check(attempt)
        self.sign = task.get_loop().time()
        self.speed.answer(len(output.tokens), self.sign - now)
        self.strikes = 0
        self.answers += 1
        self.tokens += len(output.tokens)
        self._check_version(output.weight_version, attempt.version)
        for _, version in output.extras.versions if output.extras is not None else ():
            self._check_version(version, attempt.version)
        return output

    def _check_version(self, version: int, oldest: int) -> None:
        """Say so if an answer is of weights that the engine was told to leave, or never told of."""
        if not oldest <= version <= self.newest:
            raise StaleAnswer(_stale(version, oldest, self.newest))

    def _check(self, attempt: Attempt) -> None:
        """Say so if the engine was quarantined: what it returned or raised after that is not an answer."""
        if self.quarantine is not None:
            attempt.undo()
            raise Withdrawn from None

    def _begin(self, attempt: Attempt) -> None:
        if not self.attempts:
            self.sign = attempt.began
        self.attempts[attempt] = None
        self.work += attempt.work
        self.suspects += attempt.suspect
        self.speed.begin(attempt.budget, attempt.began)

    def _end(self, attempt: Attempt) -> None:
        del self.attempts[attempt]
        self.work -= attempt.work
        self.suspects -= attempt.suspect
        self.speed.drop(attempt.budget, attempt.began)
        self._before.discard(attempt)
        self._look_if_free()
        if self._busy is not None and not self.attempts:
            self._busy.set_result(None)
            self._busy = None

    async def emptied(self) -> None:
        """Wait until no request is under way."""
        if self.attempts:
            self._busy = self._busy or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._busy)

    def begin_switch(self, when_free: Callable[[], None]) -> None:
        """It is told to load weights; say so when what it is at has ended: now, if it is at nothing."""
        self._before, self._when_free = set(self.attempts), when_free
        self._look_if_free()

    def end_switch(self) -> None:
        """It has loaded weights, or has not; what it holds back meanwhile waits for it from now on."""
        self._when_free = None
        if self.is_switching:
            self.is_switching = False
            self.sign = asyncio.get_running_loop().time()

    def _look_if_free(self) -> None:
        if self._when_free is not None and not self._before:
            when_free, self._when_free = self._when_free, None
            self.is_switching = True
            when_free()

    def withdraw(self) -> None:
        """Take back every request that is under way."""
        for attempt in tuple(self.attempts):
            attempt.withdraw()

    def silent_for(self, now: float) -> float:
        """Seconds for which it has answered nothing that it was asked, though it could."""
        return now - self.sign if self.attempts and not self.is_switching else 0.0


class StaleAnswer(Exception):
    """An answer that was made with weights which the engine was told to leave, or never told of."""


def _stale(version: int, oldest: int, newest: int) -> str:
    loaded = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    return f"it answered with weights of version {version}, expected {loaded}"
