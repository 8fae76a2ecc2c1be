"""Member: one engine from its start to its end: what it is at, what is held against it.

An engine that is quarantined never serves again; the one that is started in its place is another member.
"""

import asyncio
import enum
import sys
from dataclasses import dataclass, field

from slime_core.roles import Engine, GenerateOutput, GenerateRequest
from slime_core.rollout.engines._speed import Speed


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
    """A verdict."""

    cause: Cause
    """What kind."""
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

    async def generate(self, request: GenerateRequest, *, suspect: bool = False) -> GenerateOutput:
        """One answer.

        Raises:
            Withdrawn: the engine was quarantined meanwhile.
        """
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"
        now = task.get_loop().time()
        budget = request.sampling.max_new_tokens
        attempt = Attempt(task, now, len(request.prompt) + budget, budget, suspect, self.oldest, task.cancelling())
        self._begin(attempt)
        try:
            output = await self.engine.generate(request)
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
        if not attempt.version <= output.weight_version <= self.newest:
            raise StaleAnswer(_stale(output.weight_version, attempt.version, self.newest))
        return output

    def _check(self, attempt: Attempt) -> None:
        """Say so if the engine was quarantined: what it returned or raised after that is no answer."""
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

    def withdraw(self) -> None:
        """Take back whatever it is at."""
        for attempt in tuple(self.attempts):
            attempt.withdraw()

    def silent_for(self, now: float) -> float:
        """Seconds for which it has answered nothing that it was asked."""
        return now - self.sign if self.attempts else 0.0


class StaleAnswer(Exception):
    """An answer of weights that are not to be."""


def _stale(version: int, oldest: int, newest: int) -> str:
    loaded = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    return f"it answered with weights of version {version}, expected {loaded}"
