"""What a fake engine remembers: its weights' version, whether it is paused, what runs, what it was asked for.

All of it belongs to the server's loop; others read snapshots.
"""

import asyncio
import contextlib
import enum
import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from slime_core.sample import Json
from slime_testing._fake_engine.bodies import Sampling
from slime_testing._fake_engine.policy import Plan
from slime_testing._fake_engine.script import GOOD, Behaviour, Script

TICK_S = 0.002
"""How often a running generation looks for an abort, a pause or a client that hung up."""

Trie: TypeAlias = "dict[int, Trie]"


class Ended(enum.Enum):
    """How a generation ended."""

    ANSWERED = "answered"
    """As the script says, well or badly; a stream was read to its end."""
    ABORTED = "aborted"
    """By /abort_request, a pause or an update that aborts."""
    FAILED = "failed"
    """With the error status or the dropped connection that the script asks for."""
    DISCONNECTED = "disconnected"
    """The client hung up; SGLang goes on for seconds then, so a client should abort first."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request of any kind."""

    method: str
    """In capitals."""
    path: str
    """Without the query."""
    query: Mapping[str, str]
    """Decoded."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: Json
    """As sent; None for no body, and for one that is not JSON."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation that has ended; a batch of requests has one for each."""

    rid: str
    """The request's id."""
    path: str
    """`/generate` or `/v1/chat/completions`."""
    prompt: tuple[int, ...]
    """Token ids."""
    sampling: Sampling
    """The sampling parameters."""
    behaviour: Behaviour
    """What the script had for it."""
    tokens: tuple[int, ...]
    """What was made."""
    weight_version: str
    """Of its last token."""
    ended: Ended
    """How."""


@dataclass(slots=True)
class Job:
    """A generation under way."""

    rid: str
    path: str
    prompt: tuple[int, ...]
    sampling: Sampling
    gone: Callable[[], bool]
    """Whether its client has hung up."""
    behaviour: Behaviour = GOOD
    """What the script has for it; known when it is admitted."""
    versions: list[str] = field(default_factory=list)
    """Weight version of each token so far."""
    cached: int = 0
    """Tokens of the prompt that an earlier one shared."""
    retractions: int = 0
    abort_message: str | None = None
    """What the abort said; None as long as there was none."""

    def over(self) -> bool:
        """Whether it is aborted, or nobody waits for it any more."""
        return self.abort_message is not None or self.gone()

    def spans(self) -> list[Json]:
        """Runs of tokens made by one version, as `weight_versions` has them."""
        spans: list[Json] = []
        start = 0
        for version, tokens in itertools.groupby(self.versions):
            end = start + len(list(tokens))
            spans.append({"version": version, "start": start, "end": end})
            start = end
        return spans


@dataclass(slots=True)
class State:
    """The engine behind the endpoints."""

    script: Script
    context_length: int
    weight_version: str = "default"
    pause_mode: str | None = None
    """How generation is paused; None while it is not."""
    jobs: list[Job] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    released: frozenset[str] = frozenset()
    """Memory that is given up, by SGLang's tags."""
    asked: int = 0
    """Generations requested so far, a batch counted once: the script's position."""
    _cache: Trie = field(default_factory=dict)

    def next_behaviour(self) -> Behaviour:
        """What the script has for the generation that has just been requested."""
        self.asked += 1
        return self.script.behaviour(self.asked - 1)

    def begin(self, job: Job) -> None:
        """Take up a generation; its prompt is served from the cache as far as an earlier one began alike."""
        self.jobs.append(job)
        node = self._cache
        for position, token in enumerate(job.prompt):
            # The last token of a prompt is always computed: its logits are what is sampled from.
            job.cached += token in node and job.cached == position < len(job.prompt) - 1
            node = node.setdefault(token, {})

    async def make_token(self, job: Job, seconds: float) -> bool:
        """Make a job's next token after some time; False if it is aborted or its client is gone before."""
        now = asyncio.get_running_loop().time
        due = now() + seconds
        await _until(lambda: job.over() or (self.pause_mode is None and now() >= due))
        if not job.over():
            job.versions.append(self.weight_version)
        return not job.over()

    def end(self, job: Job, plan: Plan, ended: Ended) -> None:
        """Record a generation that is over."""
        self.jobs.remove(job)
        tokens = plan.tokens[: len(job.versions)]
        version = job.versions[-1] if job.versions else self.weight_version
        self.generations.append(
            Generation(job.rid, job.path, job.prompt, job.sampling, job.behaviour, tokens, version, ended)
        )

    def abort(self, message: str = "Aborted", *, rid: str | None = None) -> None:
        """End the running generation of an id, or all of them."""
        for job in self.jobs:
            if rid in (None, job.rid):
                job.abort_message = message

    def pause(self, mode: str) -> None:
        """Hold every generation, aborting or retracting those that run."""
        self.pause_mode = mode
        if mode == "abort":
            self.abort()
        if mode == "retract":
            for job in self.jobs:
                job.retractions += 1

    async def drained(self, timeout_s: float) -> bool:
        """Whether nothing runs, within some time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await _until(lambda: not self.jobs)
        return not self.jobs

    def flush(self) -> bool:
        """Empty the prefix cache, if no generation stands on it."""
        free = not self.jobs or self.pause_mode == "retract"
        if free:
            self._cache.clear()
        return free


async def _until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110  # a client that hangs up sets no event
        await asyncio.sleep(TICK_S)


def new_rid() -> str:
    """An id for a request that came without one."""
    return uuid.uuid4().hex
