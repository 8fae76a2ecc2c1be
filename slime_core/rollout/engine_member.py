"""One engine of a pool: its requests, how fast it is, what it may have done wrong, and its limits.

If another engine answers a request that failed, the first engine was at fault. If several engines fail on it in
turn, the request is at fault and costs its own sample. An engine is slow only if the most favourable estimate of its
speed is still low.
"""

import asyncio
import enum
import sys
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import median
from typing import Self

from slime_core.errors import ContractError, RequestError, SlimeError, said_by
from slime_core.roles import Engine, EngineSpec, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.rollout.policy import parts_of

# Speed: what one engine answered lately, and what that says of how fast it can be at most and must be at least.

WINDOW = 64
"""Answers after which older ones weigh half."""
ENOUGH = 8
"""Observations that say something."""
NOTICEABLE_S = 2.0
"""Mean seconds a request below which an engine is called slow by nobody: so long may any process be held up."""
TIMES = 20.0
"""So many times slower than the median of its peers is slow."""


@dataclass(slots=True)
class Speed:
    """Tokens and seconds of requests, a request's own token counted as one more."""

    answers: float = 0.0
    """Requests answered, older ones discounted."""
    tokens: float = 0.0
    """Of the answers."""
    seconds: float = 0.0
    """Of the answers, from request to answer."""
    running: int = 0
    """Requests under way."""
    budget: float = 0.0
    """Tokens that these may make."""
    began: float = 0.0
    """Sum of the moments when these began."""

    def begin(self, budget: int, now: float) -> None:
        """Count a request that begins at `now` and may make `budget` tokens."""
        self.running += 1
        self.budget += budget
        self.began += now

    def drop(self, budget: int, began: float) -> None:
        """A request ended without an answer."""
        self.running -= 1
        if not self.running:
            self.budget = self.began = 0.0  # nothing of what rounding left
            return
        self.budget -= budget
        self.began -= began

    def answer(self, tokens: int, seconds: float) -> None:
        """A request was answered."""
        self.answers += 1.0
        self.tokens += tokens + 1
        self.seconds += seconds
        if self.answers >= WINDOW:
            self.answers, self.tokens, self.seconds = self.answers / 2, self.tokens / 2, self.seconds / 2

    def at_least(self, now: float) -> float:
        """Tokens a second and request, if what runs has made nothing."""
        return self.tokens / max(1e-9, self._seconds(now))

    def at_most(self, now: float) -> float:
        """Tokens a second and request, if what runs is all but done."""
        return (self.tokens + self.budget + self.running) / max(1e-9, self._seconds(now))

    def is_telling(self, now: float) -> bool:
        """Whether there is enough to call it slow by."""
        seen = self.answers + self.running
        return seen >= ENOUGH and self._seconds(now) >= NOTICEABLE_S * seen

    def _seconds(self, now: float) -> float:
        return self.seconds + self.running * now - self.began


def slow_ones(speeds: Sequence[Speed], now: float) -> dict[int, str]:
    """Positions of those that are slow beside the others, and how slow."""
    telling = [position for position, speed in enumerate(speeds) if speed.is_telling(now)]
    if not telling or len(speeds) < 2:
        return {}
    rates = [speed.at_least(now) if speed.answers >= ENOUGH else None for speed in speeds]
    found = {}
    for position in telling:
        peers = [rate for each, rate in enumerate(rates) if rate is not None and each != position]
        mine = speeds[position].at_most(now)
        if peers and mine * TIMES < (usual := median(peers)):
            found[position] = f"it makes at most {mine:.2g} tokens a second for a request, its peers {usual:.2g}"
    return found


# Member: one engine from its start to its end: what it is at, what is held against it.


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


# Case: a request that an engine failed, until it is clear whose fault that was.

SUSPECT_LOST = 2
"""Engines that may die or hang over a request before it is asked alone."""
MOST_UNEXPLAINED = 2
"""Engines that it may lose then, in a row, while all others serve: one may be chance where engines come and go."""
MOST_LOST = 32
"""And altogether, whatever explains it."""
MOST_FAILED = 3
"""Engines that may raise or return garbage for a request."""


class Case:
    """What engines did to one request."""

    def __init__(self) -> None:
        """No engine has failed it yet."""
        self.failed: list[tuple[Member, Exception]] = []
        """Who raised or returned garbage, and goes on."""
        self._lost: list[str] = []
        self._victims: set[Member] = set()
        self._deaths = self._unexplained = 0

    @property
    def members(self) -> list[Member]:
        """Who is not asked again."""
        return [member for member, _ in self.failed]

    @property
    def is_suspect(self) -> bool:
        """Whether an engine died or hung over it."""
        return bool(self._lost)

    @property
    def is_to_be_tried(self) -> bool:
        """Whether it is asked alone from now on."""
        return len(self._lost) >= SUSPECT_LOST

    def lose(self, member: Member, deaths: int, *, out: Set[Member], alone: bool) -> None:
        """An engine was quarantined while it was at the request.

        Args:
            member: which one.
            deaths: engines that died or hung in all, with this one.
            out: those that do not serve now.
            alone: whether it was at nothing else.

        Raises:
            RequestError: nothing explains it, or this happened too often.
        """
        verdict = member.quarantine
        assert verdict is not None, "it was quarantined"
        if verdict.cause not in DEADLY:
            return
        self._lost.append(f"engine {member.number} {verdict.cause.value}: {verdict.detail}")
        self._victims.add(member)
        is_alone_with_it = alone and deaths == self._deaths + 1 and out <= self._victims
        self._unexplained = self._unexplained + 1 if is_alone_with_it else 0
        self._deaths = deaths
        if self._unexplained == MOST_UNEXPLAINED or len(self._lost) == MOST_LOST:
            listed = "\n  ".join(self._lost)
            raise RequestError(
                f"{len(self._lost)} engines died or hung over one request, {self._unexplained} of them while they were "
                f"asked nothing else and all others served; it is given up:\n  {listed}"
            )

    def fail(self, member: Member, error: Exception) -> None:
        """An engine raised, or its answer breaks the contract.

        Raises:
            Exception: the error, when several engines failed.
        """
        member.doubts += 1
        self.failed.append((member, error))
        if len(self.failed) == MOST_FAILED:
            raise error

    def close(self) -> None:
        """No engine is in doubt any more for this request."""
        for member, _ in self.failed:
            member.doubts -= 1
        self.failed = []


def is_garbage(error: Exception) -> bool:
    """Whether an engine gave something that is not an answer; an engine that says that it cannot answer did not."""
    return isinstance(error, ContractError)


def told(error: Exception) -> str:
    """What an engine's error says; one of ours speaks for itself."""
    return said_by(error) if isinstance(error, SlimeError) else f"{type(error).__name__}: {said_by(error)}"


# Reading: a response in parts on its way from one engine.


class Reading:
    """The parts of one response, in order."""

    def __init__(self, member: Member, request: GenerateRequest, *, suspect: bool) -> None:
        """Ask the engine."""
        self.member = member
        """Who answers."""
        self.told = 0
        """Tokens of the parts that were taken."""
        self._came: asyncio.Queue[GenerateChunk | None] = asyncio.Queue()
        self._first: GenerateChunk | None = None
        self._task = asyncio.create_task(member.read(request, self._came.put_nowait, suspect=suspect))
        self._task.add_done_callback(lambda task: self._came.put_nowait(None))

    @classmethod
    async def begun(cls, member: Member, request: GenerateRequest, *, suspect: bool = False) -> Self:
        """A response whose first part is there. Errors are those of `Member.read`."""
        reading = cls(member, request, suspect=suspect)
        try:
            reading._first = await reading._take()
        except BaseException:
            await reading.close()
            raise
        return reading

    async def next(self) -> GenerateChunk:
        """Wait for a part; the last one comes when the engine is done with it. Errors are those of `Member.read`."""
        chunk, self._first = self._first or await self._take(), None
        self.told += len(chunk.tokens)
        return chunk

    async def close(self) -> None:
        """Drop what has not come yet."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _take(self) -> GenerateChunk:
        chunk = await self._came.get()
        if chunk is None or chunk.finish is not None:
            await self._task
        assert chunk is not None, "an answer has an end"
        return chunk


# Limits: how long engines may take. What depends on the engine is what its spec says.

LEAST_START_S = 600.0
"""Seconds that any engine has to start: a slow one is in nobody's way while others serve."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds engines may take; a field each."""

    silence_s: float
    """Without any sign of life of an engine that has work, or is to abort it."""
    restart_s: float
    """Without any engine that serves, until the run ends."""
    probe_s: float
    """For the first answer of an engine that was restarted."""
    load_s: float
    """For loading weights, once what was under way has ended."""

    @classmethod
    def of(cls, spec: EngineSpec, silence_s: float) -> Self:
        """Those of a kind of engine."""
        return cls(silence_s, spec.restart_s, spec.probe_s, spec.load_s)

    @property
    def start_s(self) -> float:
        """For starting an engine."""
        return max(LEAST_START_S, self.restart_s)
