"""Answers as bytes, broken where the script asks for it."""

import json

from slime_core.sample import Json
from slime_testing._fake_engine.generation import Progress
from slime_testing._fake_engine.http import JSON, Hangup, Parts, Reply
from slime_testing._fake_engine.script import Disconnect, Flaw, Malformed
from slime_testing._fake_engine.state import Job


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
