"""SGLang's /generate: runs a generation, and replies correctly or as scripted."""

import base64
import json
import uuid
from array import array
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from slime_core.sample import Json
from slime_testing._fake_engine.http import EVENTS, JSON, GenerateBody, Hangup, Parts, Refused, Reply, Request, parse
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
    text_log_probs,
)


@dataclass(frozen=True, slots=True)
class Progress:
    job: Job
    plan: Plan
    count: int
    version: str
    finish: dict[str, Json] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.plan.tokens[: self.count]

    @property
    def text(self) -> str:
        return self.plan.text(self.count)

    @property
    def log_probs(self) -> tuple[float, ...]:
        """Log-probs so far; one too few if the script requests it."""
        short = self.job.behaviour == Malformed(Flaw.SHORT_LOG_PROBS)
        return self.plan.log_probs[: self.count][: -1 if short else None]

    def meta(self) -> dict[str, Json]:
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
            "cached_tokens": 0,
            "weight_versions": spans,
            "cached_tokens_details": None,
            "dp_rank": None,
        }


async def generate(state: State, request: Request) -> Reply:
    """POST /generate: one prompt; the reply is complete or a stream.

    Raises:
        Refused: SGLang would not accept the body, or the script requests an error.
        Hangup: the script requests a dropped connection.
    """
    body = parse(GenerateBody, request)
    prompt = tuple(body.input_ids)
    if len(prompt) >= state.context_length:
        limit = f"the model's context length ({state.context_length} tokens)"
        raise Refused(400, f"The input ({len(prompt)} tokens) is longer than {limit}.")
    job = Job(body.rid or uuid.uuid4().hex, prompt, body.sampling_params, request.gone, state.next_behaviour())
    if isinstance(job.behaviour, FailThenOk | Disconnect):
        state.jobs.append(job)
        state.end(job, plan(prompt, job.sampling, job.behaviour, state.weight_version), Ended.FAILED)
        if isinstance(job.behaviour, FailThenOk):
            raise Refused(job.behaviour.status, "the fake engine's script lets this generation fail")
        raise Hangup
    if body.stream:
        return Reply(200, _stream(state, job, body), EVENTS)
    *_, last = [each async for each in perform(state, job)]
    payload = json.dumps(_result(last, body)).encode()
    match job.behaviour:
        case Malformed(Flaw.BROKEN_JSON):
            return Reply(200, payload[: len(payload) // 2])
        case Malformed(Flaw.TRUNCATED):
            return Reply(200, _half(payload), JSON, len(payload))
    return Reply(200, payload)


async def _stream(state: State, job: Job, body: GenerateBody) -> Parts:
    flawed = job.behaviour.flaw if isinstance(job.behaviour, Malformed) else None
    async for progress in perform(state, job):
        payload = json.dumps(_result(progress, body))
        if flawed is Flaw.TRUNCATED and (progress.finish or progress.count > len(progress.plan.tokens) // 2):
            continue
        if flawed is Flaw.BROKEN_JSON and progress.finish:
            payload = payload[: len(payload) // 2]
        yield f"data: {payload}\n\n".encode()
    if flawed is not Flaw.TRUNCATED:
        yield b"data: [DONE]\n\n"


def _result(progress: Progress, body: GenerateBody) -> dict[str, Json]:
    meta = progress.meta()
    if body.return_logprob:
        entries = zip(progress.log_probs, progress.tokens, strict=False)  # the script may request one log-prob too few
        meta["input_token_logprobs"] = [list(each) for each in _of_prompt(progress, body.logprob_start_len)]
        meta["output_token_logprobs"] = [[*entry, None] for entry in entries]
        meta["output_token_logprobs_length"] = len(progress.log_probs)
    if body.return_sampling_mask:
        meta["output_token_sampling_mask"] = [[token, token + 1] for token in progress.tokens]
    if body.return_routed_experts:
        meta["routed_experts"] = _experts([*progress.job.prompt, *progress.tokens][:-1])
    return {"text": progress.text, "output_ids": list(progress.tokens), "meta_info": meta}


def _of_prompt(progress: Progress, start: int) -> list[tuple[float | None, int, None]]:
    if start < 0:
        return []
    prompt = progress.job.prompt
    scored = zip(text_log_probs(prompt, progress.version)[start:], prompt[start:], strict=True)
    return [(log_prob if place else None, token, None) for place, (log_prob, token) in enumerate(scored)]


def _experts(tokens: Sequence[int]) -> str:
    chosen = [(token + layer + 3 * place) % 8 for token in tokens for layer in range(2) for place in range(2)]
    return base64.b64encode(array("i", chosen).tobytes()).decode()


async def perform(state: State, job: Job) -> AsyncGenerator[Progress, None]:
    """Run a job and yield its progress after each token; the last progress has a finish reason.

    Raises:
        Hangup: the client has disconnected.
    """
    planned = plan(job.prompt, job.sampling, job.behaviour, state.weight_version)
    seconds = job.behaviour.seconds / max(1, len(planned.tokens)) if isinstance(job.behaviour, Slow) else 0.0
    ended = Ended.DISCONNECTED
    state.jobs.append(job)
    try:
        while len(job.versions) < len(planned.tokens) and await state.make_token(job, seconds):
            if len(job.versions) < len(planned.tokens):
                yield Progress(job, planned, len(job.versions), job.versions[-1])
        if job.gone():
            raise Hangup
        finish, ended = planned.finish, Ended.ANSWERED
        if len(job.versions) < len(planned.tokens):
            finish, ended = aborted(job.abort_message or ""), Ended.ABORTED
        version = job.versions[-1] if job.versions else state.weight_version
        yield Progress(job, planned, len(job.versions), version, finish)
    finally:
        state.end(job, planned, ended)


async def _half(payload: bytes) -> Parts:
    yield payload[: len(payload) // 2]
    raise Hangup
