"""Script, random draws, requests and generations of the fake engine."""

import asyncio
import contextlib
import enum
import itertools
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from slime_core.sample import Json
from slime_testing._fake_engine.http import Sampling
from slime_testing.engine import EOS, CharTokenizer

CODE_POINTS = 0x110000
"""Token ids are code points: the fake engine's tokenizer is `CharTokenizer`."""


class Flaw(enum.Enum):
    """What is wrong with a malformed answer, whose status is 200."""

    BROKEN_JSON = "broken-json"
    """The body, or the last event of a stream, is not JSON."""
    TRUNCATED = "truncated"
    """A body that is shorter than its content-length; a stream without its last events and `[DONE]`."""
    SHORT_LOG_PROBS = "short-log-probs"
    """One log-prob fewer than tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A correct answer, without delay."""

    tokens: Sequence[int] | None = None
    """Token ids of the response, up to a stop token or the budget; None: drawn from the prompt and sampling seed."""

    def __post_init__(self) -> None:
        if any(not 0 <= token < CODE_POINTS for token in self.tokens or ()):
            raise ValueError(f"Answer({self.tokens}): token ids must be code points, 0 to {CODE_POINTS - 1}")


@dataclass(frozen=True, slots=True)
class Slow:
    """A correct answer whose tokens are spread over time, so that it can be aborted or paused."""

    seconds: float
    """Seconds from the first token to the last."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"Slow({self.seconds}): expected a finite number of seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class FailThenOk:
    """Errors for the first generations, then correct answers."""

    status: int = 500
    """HTTP status of the error."""
    times: int = 1
    """Number of generations that fail."""

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599 or self.times < 1:
            raise ValueError(f"{self}: expected a status from 400 to 599, and times of at least 1")


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that violates the protocol."""

    flaw: Flaw
    """What is wrong with it."""


@dataclass(frozen=True, slots=True)
class AbortMidway:
    """The engine aborts the generation: finish reason abort, with the tokens so far."""

    after_tokens: int
    """Number of tokens that are generated before the abort."""


@dataclass(frozen=True, slots=True)
class StaleVersion:
    """A correct answer that reports another weight version than the loaded one."""

    version: str = "default"
    """The reported version. "default" is the version of a server's initial weights."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The server drops the connection without an answer."""


Behaviour: TypeAlias = Answer | Slow | FailThenOk | Malformed | AbortMidway | StaleVersion | Disconnect

GOOD = Answer()
"""Behaviour if there is no script."""


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviours of generations, in order."""

    steps: tuple[Behaviour, ...]

    def behaviour(self, generation: int) -> Behaviour:
        """Behaviour of a generation, by its number. A `FailThenOk` becomes an `Answer` after its `times`."""
        step = min(generation, len(self.steps) - 1)
        found = self.steps[step]
        if isinstance(found, FailThenOk) and generation - step >= found.times:
            return GOOD
        return found


LETTERS = "abcdefghijklmnopqrstuvwxyz "
END_RATE = 0.1
LEAST_LOG_PROB = -4.0
MOST_CRC = 0xFFFFFFFF
SURE_BIAS = 50.0
"""`logit_bias` from which a token is certain. Like SGLang, the engine reports the biased distribution's log-prob: 0."""

TOKENIZER = CharTokenizer()


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete generation, computed before its first token is sent."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish: dict[str, Json]
    trim: int = 0

    def text(self, count: int) -> str:
        """Text of the first `count` tokens. The complete text has no stop string at its end."""
        text = TOKENIZER.decode(self.tokens[:count])
        return text[: len(text) - self.trim] if count == len(self.tokens) else text


def plan(prompt: Sequence[int], sampling: Sampling, behaviour: Behaviour, version: str) -> Plan:
    """The complete answer to a prompt, for a behaviour and a weight version."""
    seed = None if sampling.temperature == 0 else sampling.sampling_seed or 0
    drawn = random.Random(f"{seed} {list(prompt)}")
    fixed_log_probs: Sequence[float] | None = None
    match behaviour:
        case Answer(tokens=tokens) if tokens is not None:
            planned = _end(tokens, sampling)
        case AbortMidway(after_tokens=after):
            complete = _end(_draws(drawn), sampling.model_copy(update={"ignore_eos": True}))
            planned = replace(complete, tokens=complete.tokens[:after], finish=aborted(), trim=0)
        case _ if sure := {
            int(token): bias for token, bias in (sampling.logit_bias or {}).items() if bias >= SURE_BIAS
        }:
            planned = _end(_biased(sure, sampling), sampling)
            fixed_log_probs = [0.0] * len(planned.tokens)
        case _:
            planned = _end(_draws(drawn), sampling)
    own = text_log_probs([*prompt, *planned.tokens], version)[len(prompt) :]
    return replace(planned, log_probs=tuple(fixed_log_probs or own)[: len(planned.tokens)])


def text_log_probs(tokens: Sequence[int], version: str) -> list[float]:
    """Log-prob of each token, given the tokens before it; the same for generated text and for prompts."""
    seen, log_probs = zlib.crc32(version.encode()), list[float]()
    for token in tokens:
        seen = zlib.crc32(token.to_bytes(8, "little", signed=True), seen)
        log_probs.append(LEAST_LOG_PROB * seen / MOST_CRC)
    return log_probs


def aborted(message: str = "Aborted") -> dict[str, Json]:
    return {"type": "abort", "message": message, "status_code": None, "err_type": None}


def _draws(drawn: random.Random) -> Iterator[int]:
    while True:
        yield EOS if drawn.random() < END_RATE else ord(drawn.choice(LETTERS))


def _biased(biases: dict[int, float], sampling: Sampling) -> Iterator[int]:
    while True:
        token = max(biases, key=lambda each: biases[each])
        yield token
        biases = {**biases, token: biases[token] - sampling.frequency_penalty}


def _end(source: Sequence[int] | Iterator[int], sampling: Sampling) -> Plan:
    """Tokens of the source up to a stop token, a stop string, the budget or its end, without log-probs.

    As in SGLang, no stop token is drawn before `min_new_tokens`, and `ignore_eos` disables every stop token.
    """
    stops = {*(sampling.stop_token_ids or ()), EOS}
    strings = [sampling.stop] if isinstance(sampling.stop, str) else sampling.stop or []
    trimmed = not sampling.no_stop_trim
    tokens: list[int] = []
    finish: dict[str, Json] | None = None
    trim = 0
    for token in source:
        if len(tokens) == sampling.max_new_tokens:
            break
        if token in stops and len(tokens) < sampling.min_new_tokens:
            continue
        tokens.append(token)
        if token in stops and not sampling.ignore_eos:
            finish, trim = {"type": "stop", "matched": token}, trimmed * len(TOKENIZER.decode([token]))
            break
        if found := next((each for each in strings if TOKENIZER.decode(tokens).endswith(each)), None):
            finish, trim = {"type": "stop", "matched": found}, trimmed * len(found)
            break
    if finish is None and len(tokens) == sampling.max_new_tokens:
        finish = {"type": "length", "length": len(tokens)}
    if finish is None:
        finish = {"type": "stop", "matched": tokens[-1] if tokens else EOS}
    return Plan(tuple(tokens), (), finish, trim)


TICK_S = 0.002
"""Seconds between checks for an abort, a pause or a client that has disconnected."""


class Ended(enum.Enum):
    """How a generation ended."""

    ANSWERED = "answered"
    """It was answered completely, correctly or malformed, according to the script."""
    ABORTED = "aborted"
    """It was aborted by /abort_request, a pause or a weight update."""
    FAILED = "failed"
    """It ended with the scripted error status or dropped connection."""
    DISCONNECTED = "disconnected"
    """The client disconnected. SGLang then continues for seconds, so a client should abort the request first."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request to any endpoint."""

    method: str
    """HTTP method, in upper case."""
    path: str
    """Path without the query."""
    query: Mapping[str, str]
    """The decoded query."""
    headers: Mapping[str, str]
    """Values of headers, by lower-case name."""
    body: Json
    """The body; None: it is empty, or not JSON."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished generation."""

    rid: str
    """Request id."""
    prompt: tuple[int, ...]
    """Token ids."""
    sampling: Sampling
    """The sampling parameters."""
    behaviour: Behaviour
    """The scripted behaviour."""
    tokens: tuple[int, ...]
    """Generated token ids."""
    weight_version: str
    """Version of the last token."""
    ended: Ended
    """How it ended."""


@dataclass(slots=True)
class Job:
    rid: str
    prompt: tuple[int, ...]
    sampling: Sampling
    gone: Callable[[], bool]
    behaviour: Behaviour
    versions: list[str] = field(default_factory=list)
    retractions: int = 0
    abort_message: str | None = None

    def over(self) -> bool:
        return self.abort_message is not None or self.gone()

    def spans(self) -> list[Json]:
        spans: list[Json] = []
        start = 0
        for version, tokens in itertools.groupby(self.versions):
            end = start + len(list(tokens))
            spans.append({"version": version, "start": start, "end": end})
            start = end
        return spans


@dataclass(slots=True)
class State:
    script: Script
    context_length: int
    weight_version: str = "default"
    pause_mode: str | None = None
    jobs: list[Job] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    released: frozenset[str] = frozenset()
    num_requests: int = 0

    def next_behaviour(self) -> Behaviour:
        self.num_requests += 1
        return self.script.behaviour(self.num_requests - 1)

    async def make_token(self, job: Job, seconds: float) -> bool:
        """Generate a job's next token after some seconds; False if it was aborted or its client disconnected first."""
        now = asyncio.get_running_loop().time
        due = now() + seconds
        await _until(lambda: job.over() or (self.pause_mode is None and now() >= due))
        if not job.over():
            job.versions.append(self.weight_version)
        return not job.over()

    def end(self, job: Job, plan: Plan, ended: Ended) -> None:
        self.jobs.remove(job)
        tokens = plan.tokens[: len(job.versions)]
        version = job.versions[-1] if job.versions else self.weight_version
        self.generations.append(Generation(job.rid, job.prompt, job.sampling, job.behaviour, tokens, version, ended))

    def abort(self, message: str = "Aborted", *, rid: str | None = None) -> None:
        for job in self.jobs:
            if rid in (None, job.rid):
                job.abort_message = message

    def pause(self, mode: str) -> None:
        """Pause all generations; running ones are aborted or retracted, by `mode`."""
        self.pause_mode = mode
        if mode == "abort":
            self.abort()
        if mode == "retract":
            for job in self.jobs:
                job.retractions += 1

    async def drained(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await _until(lambda: not self.jobs)
        return not self.jobs

    @property
    def may_flush(self) -> bool:
        return not self.jobs or self.pause_mode == "retract"


async def _until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110  # no event is set when a client disconnects
        await asyncio.sleep(TICK_S)
