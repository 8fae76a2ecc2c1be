"""How a generation of the fake engine goes on, and how its result is sent, well or badly."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from slime_core.sample import Json
from slime_testing._fake_engine.http import JSON, Hangup, Parts, Reply
from slime_testing._fake_engine.state import (
    Disconnect,
    Ended,
    FailThenOk,
    Flaw,
    Job,
    Malformed,
    Plan,
    Slow,
    StaleVersion,
    State,
    aborted,
    plan,
)


class Refused(Exception):
    """The request is answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has come."""

    job: Job
    plan: Plan
    count: int
    version: str
    finish: dict[str, Json] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Ids so far."""
        return self.plan.tokens[: self.count]

    @property
    def text(self) -> str:
        """Text so far."""
        return self.plan.text(self.count)

    @property
    def log_probs(self) -> list[float | None]:
        """Log-probs so far, with the flaw that the script asks for."""
        values: list[float | None] = list(self.plan.log_probs[: self.count])
        match self.job.behaviour:
            case Malformed(Flaw.SHORT_LOG_PROBS):
                return values[:-1]
            case Malformed(Flaw.NAN_LOG_PROB):
                return [*values[:-1], float("nan")]
            case Malformed(Flaw.NULL_LOG_PROB):
                return [*values[:-1], None]
        return values

    def meta(self) -> dict[str, Json]:
        """`meta_info` but for the log-probs."""
        job = self.job
        version, spans = self.version, job.spans()
        if isinstance(job.behaviour, StaleVersion):
            version, spans = job.behaviour.version, [{"version": job.behaviour.version, "start": 0, "end": self.count}]
        return {
            "id": job.rid,
            "finish_reason": self.finish,
            "prompt_tokens": len(job.prompt),
            "weight_version": version,
            "num_retractions": job.retractions,
            "reasoning_tokens": 0,
            "completion_tokens": self.count,
            "cached_tokens": job.cached,
            "weight_versions": spans,
            "cached_tokens_details": None,
            "dp_rank": None,
        }


def admit(state: State, jobs: Sequence[Job]) -> None:
    """Refuse what the engine cannot take, and what the script does not answer at all.

    Raises:
        Refused: a prompt is too long, or the script has an error for it.
        Hangup: the script drops the connection.
    """
    for job in jobs:
        if len(job.prompt) >= state.context_length:
            raise Refused(
                400,
                f"The input ({len(job.prompt)} tokens) is longer than the model's context length"
                f" ({state.context_length} tokens).",
            )
    behaviour = state.next_behaviour()
    for job in jobs:
        job.behaviour = behaviour
    if isinstance(behaviour, FailThenOk) or behaviour == Disconnect():
        for job in jobs:
            state.begin(job)
            state.end(job, plan(job.prompt, job.sampling, behaviour, state.weight_version), Ended.FAILED)
        if isinstance(behaviour, FailThenOk):
            raise Refused(behaviour.status, "the script of the fake engine says that this one fails")
        raise Hangup


async def perform(state: State, job: Job) -> AsyncGenerator[Progress, None]:
    """Carry out a job and yield its progress after each token; the last one has a finish reason.

    Raises:
        Hangup: nobody waits for it any more.
    """
    planned = plan(job.prompt, job.sampling, job.behaviour, state.weight_version)
    seconds = job.behaviour.seconds / max(1, len(planned.tokens)) if isinstance(job.behaviour, Slow) else 0.0
    ended = Ended.DISCONNECTED
    state.begin(job)
    try:
        while len(job.versions) < len(planned.tokens) and await state.make_token(job, seconds):
            if len(job.versions) < len(planned.tokens):
                yield Progress(job, planned, len(job.versions), job.versions[-1])
        if job.gone():
            raise Hangup
        finish, ended = planned.finish, Ended.ANSWERED
        if len(job.versions) < len(planned.tokens):
            finish, ended = aborted(job.abort_message or ""), Ended.ABORTED
        elif isinstance(job.behaviour, Disconnect):
            ended = Ended.FAILED
        version = job.versions[-1] if job.versions else state.weight_version
        yield Progress(job, planned, len(job.versions), version, finish)
    finally:
        state.end(job, planned, ended)


async def finished(state: State, job: Job) -> Progress:
    """The last progress of a job."""
    progress = [each async for each in perform(state, job)]
    return progress[-1]


def whole(result: Json, job: Job) -> Reply:
    """A reply in one piece.

    Raises:
        Hangup: the script drops the connection instead.
    """
    payload = json.dumps(result).encode()
    match job.behaviour:
        case Malformed(Flaw.BROKEN_JSON):
            return Reply(200, payload[: len(payload) // 2])
        case Malformed(Flaw.TRUNCATED):
            return Reply(200, _half(payload), JSON, len(payload))
        case Disconnect():
            raise Hangup
    return Reply(200, payload)


def event(result: Json, progress: Progress) -> bytes:
    """An event of a stream; empty for what the script keeps back."""
    payload = json.dumps(result)
    match progress.job.behaviour:
        case Malformed(Flaw.BROKEN_JSON) if progress.finish is not None:
            payload = payload[: len(payload) // 2]
        case Malformed(Flaw.TRUNCATED) if progress.finish or progress.count > len(progress.plan.tokens) // 2:
            return b""
        case Disconnect(after_tokens=after) if progress.finish or progress.count > after:
            return b""
    return f"data: {payload}\n\n".encode()


def end_of_stream(job: Job) -> bytes:
    """What comes after the last event.

    Raises:
        Hangup: the script drops the connection instead.
    """
    if isinstance(job.behaviour, Disconnect):
        raise Hangup
    return b"" if job.behaviour == Malformed(Flaw.TRUNCATED) else b"data: [DONE]\n\n"


async def _half(payload: bytes) -> Parts:
    yield payload[: len(payload) // 2]
    raise Hangup
