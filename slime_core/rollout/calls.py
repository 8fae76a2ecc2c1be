"""The engine as one sample's generator sees it: calls with derived seeds and limits, their extras, waits and pauses.

A call's seed follows from its name, so a repeated call gets the same seed. The extras of an answer are copied into
each sample whose tokens begin with that call's prompt and answer. What each sample waits for is kept, for the live
display and the spans of a run.

A paused call continues later from the tokens that it has, with newer weights. Generators do not see the pause; the
answer records which version made which tokens.

Example:

    calls = Calls(engine, policy, policy.sampling, (group_id, 0, state))
    out = await calls.generate(prompt, sampling, turn="agent-2/turn-7", on_chunk=show)
    attach_engine_extras(calls.finished, samples)
"""

import asyncio
import logging
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from math import isfinite
from typing import NamedTuple, Protocol, Self, TypeAlias, cast

from slime_core.errors import ContractError, LimitError
from slime_core.roles import (
    Engine,
    EngineExtras,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
)
from slime_core.rollout.policy import RolloutPolicy
from slime_core.sample import GroupId, Json, PrefixCacheInfo, Sample, SpecInfo
from slime_core.seeds import derive_seed

COUNTERS = {"spec_info": SpecInfo(), "prefix_cache_info": PrefixCacheInfo()}
"""Counters that are summed over calls, and their zero values."""


class Call(NamedTuple):
    """A finished call of the engine."""

    prompt_length: int
    output: GenerateOutput
    prompt: tuple[int, ...] = ()
    """The prompt's tokens; kept only if the output has extras."""

    def is_part_of(self, whole: tuple[int, ...]) -> bool:
        """Whether these tokens begin with the call's prompt and output."""
        begin, new = self.prompt_length, tuple(self.output.tokens)
        return whole[begin : begin + len(new)] == new and whole[:begin] == self.prompt


def attach_engine_extras(calls: Sequence[Call], samples: Sequence[Sample]) -> None:
    """Fill the fields of finished samples from the extras of the answers.

    A column is filled only if the calls give experts for every token, or top-p sets for every trained token.
    The counters of a call are added to the first sample that contains it, else to the first sample.
    """
    known = [(call, call.output.extras) for call in calls if call.output.extras is not None]
    if not known or not samples:
        return
    wholes = [tuple(sample.tokens) for sample in samples]
    for sample, whole in zip(samples, wholes, strict=True):
        own = sorted((each for each in known if each[0].is_part_of(whole)), key=lambda each: each[0].prompt_length)
        if sample.rollout_routed_experts is None:
            sample.rollout_routed_experts = _experts(own, len(whole))
        if sample.rollout_top_p_token_offsets is None:
            sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = _top_p(own, sample)
    uncounted = {name: [getattr(sample, name) == nothing for sample in samples] for name, nothing in COUNTERS.items()}
    for call, extras in known:
        owner = next((place for place, whole in enumerate(wholes) if call.is_part_of(whole)), 0)
        for name in COUNTERS:
            if (more := getattr(extras, name)) is not None and uncounted[name][owner]:
                total = getattr(samples[owner], name)
                for item in fields(total):
                    setattr(total, item.name, getattr(total, item.name) + getattr(more, item.name))


def _experts(calls: Sequence[tuple[Call, EngineExtras]], tokens: int) -> "array[int] | None":
    # Each token keeps the experts of the first call that has them: its log-prob was computed with those.
    whole, stride = array("i"), 0
    for call, extras in calls:
        if extras.routed_experts is not None and (seen := call.prompt_length + len(call.output.tokens) - 1):
            whole += extras.routed_experts[len(whole) :]
            stride = len(extras.routed_experts) // seen
    return whole if whole and len(whole) == stride * (tokens - 1) else None


def _top_p(
    calls: Sequence[tuple[Call, EngineExtras]], sample: Sample
) -> "tuple[array[int], array[int]] | tuple[None, None]":
    kept: list[Sequence[int] | None] = [None] * sample.response_length
    for call, extras in calls:
        if (ids := extras.top_p_token_ids) is None or (offsets := extras.top_p_token_offsets) is None:
            continue
        begin = call.prompt_length - sample.prompt_length
        for place in range(max(0, -begin), len(call.output.tokens)):
            kept[begin + place] = ids[offsets[place] : offsets[place + 1]]
    mask = sample.loss_mask or [1] * len(kept)
    if not any(kept) or any(bit and ids is None for bit, ids in zip(mask, kept, strict=True)):
        return None, None
    sizes = accumulate((len(ids or ()) for ids in kept), initial=0)
    return array("i", [each for ids in kept for each in ids or ()]), array("i", sizes)


# SamplesInFlight: what each sample in flight waits for.

Ended: TypeAlias = Callable[[GroupId, int | None, bool, Sequence[tuple[str, float]], float], None]
"""Called when a sample ends: group, index, whether it is an evaluation, the label and start of each wait, and the end.
Times are seconds of `time.monotonic`."""
WAITING_FOR_SLOT = "a free slot"
"""Label of a sample that has no slot yet."""
NOT_STARTED = "its turn"
"""Label of a sample that has not reported what it waits for."""
FIRST_S = 25.0
"""Seconds without a finished sample before `StallReporter` reports."""
LOOK_S = 1.0
"""Seconds between two checks."""
MAX_MARKS = 1000
"""Label changes that are kept per sample."""
MAX_NAMED = 4
"""Samples that a report names, the oldest first."""

log = logging.getLogger(__name__)


class SamplesInFlight:
    """The samples in flight; each waits for one thing at a time."""

    def __init__(self) -> None:
        self.ended = 0
        """Samples that have ended."""
        self.on_end: Ended | None = None
        """Called when one ends."""
        self.samples: dict[SampleInFlight, None] = {}

    def track(self, group: GroupId, index: int | None, *, evaluation: bool = False) -> "SampleInFlight":
        """Context manager that tracks one sample, in its task and the tasks that it starts."""
        return SampleInFlight(self, group, index, evaluation)

    @property
    def text(self) -> str:
        """Such as "engine: 37 samples, reward math: 2 samples"; "nothing" when none is in flight."""
        counts = Counter(each.what for each in tuple(self.samples) if each.what != NOT_STARTED)
        return ", ".join(f"{what}: {n} sample{'s' * (n != 1)}" for what, n in sorted(counts.items())) or "nothing"

    @property
    def running(self) -> "list[SampleInFlight]":
        """Samples that have a slot, the longest current wait first."""
        return sorted(
            (each for each in tuple(self.samples) if each.what != WAITING_FOR_SLOT), key=lambda each: each.since
        )


@dataclass(slots=True, eq=False)
class SampleInFlight:
    """One sample in flight."""

    _in_flight: SamplesInFlight
    _group: GroupId
    _index: int | None
    _evaluation: bool
    what: str = NOT_STARTED
    """Label of what the sample waits for."""
    place: str = ""
    """Engine that handles its call, if there are several."""
    generator: str = ""
    """Name of its generator."""
    since: float = 0.0
    """Time at which that wait began."""
    marks: list[tuple[str, float]] = field(default_factory=list)
    """Label and start of each wait."""
    _calls: int = 0
    _token: "Token[SampleInFlight | None] | None" = None

    def set_wait(self, what: str) -> None:
        """Record what the sample waits for from now on."""
        self.what, self.since = what, time.monotonic()
        if len(self.marks) < MAX_MARKS:
            self.marks.append((what, self.since))

    def call_begins(self) -> "Token[SampleInFlight | None]":
        """Count an engine call, in any task; returns what `call_ends` takes."""
        self._calls += 1
        if self._calls == 1:
            self.set_wait("engine")
        return _current.set(self)

    def call_ends(self, token: "Token[SampleInFlight | None]") -> None:
        """Count one call fewer; after the last one, the sample waits for its generator again."""
        _current.reset(token)
        self._calls -= 1
        if not self._calls and self.what == "engine":
            self.set_wait("generator")

    def label(self, now: float) -> str:
        """The sample's identity, what it waits for, and for how long."""
        where = self.place if self.what == "engine" and self.place else self.what
        generator = f" (generator {self.generator})" if self.generator else ""
        return f"sample {self._index} of group {self._group}, {now - self.since:.0f} s in {where}{generator}"

    def __enter__(self) -> "SampleInFlight":
        self.set_wait(self.what)
        self._in_flight.samples[self] = None
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._token is not None, "it was entered"
        _current.reset(self._token)
        in_flight = self._in_flight
        del in_flight.samples[self]
        in_flight.ended += 1
        if in_flight.on_end is not None:
            in_flight.on_end(self._group, self._index, self._evaluation, self.marks, time.monotonic())


_current: ContextVar[SampleInFlight | None] = ContextVar("sample in flight", default=None)


def set_engine(place: str) -> None:
    """Record which of several engines the current sample waits for."""
    if (state := _current.get()) is None:
        return
    state.place = place
    marks = state.marks
    if marks and marks[-1][0] == "engine":
        marks[-1] = (place, marks[-1][1])
    elif len(marks) < MAX_MARKS:  # the call moved from another engine
        marks.append((place, time.monotonic()))


def set_wait(what: str) -> None:
    """Record what the current sample waits for from now on."""
    if (state := _current.get()) is not None:
        state.set_wait(what)


class StallReporter:
    """Reports what a rollout waits for when no sample has ended for a long time, and again after twice that time."""

    def __init__(self, in_flight: SamplesInFlight, report: Callable[[str], None], first_s: float = FIRST_S) -> None:
        self._in_flight, self._report, self._first_s = in_flight, report, first_s
        self._ended, self._since, self._next_s = -1, 0.0, first_s
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._check_progress()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_progress(self) -> None:
        in_flight, running, now = self._in_flight, self._in_flight.running, time.monotonic()
        if in_flight.ended != self._ended or not running:
            self._ended, self._since, self._next_s = in_flight.ended, now, self._first_s
        elif now - self._since >= self._next_s:
            self._next_s *= 2
            named = "; ".join(each.label(now) for each in running[:MAX_NAMED])
            more = f"; and {len(running) - MAX_NAMED} more" if len(running) > MAX_NAMED else ""
            text = f"no sample ended for {now - self._since:.0f} s; waiting for {in_flight.text}: {named}{more}"
            log.info(text)
            self._report(text)
        self._timer = asyncio.get_running_loop().call_later(min(LOOK_S, self._first_s / 4), self._check_progress)


# PausableEngine: the engine of all samples.

OnChunk: TypeAlias = Callable[[GenerateChunk], None]
"""Called with each part of an answer as it arrives; an exception from it ends the call."""


class Answers(Protocol):
    """`Engine.generate` with streaming, as the core's own engines implement it."""

    async def generate(self, request: GenerateRequest, on_chunk: OnChunk | None = None) -> GenerateOutput: ...


class PausableEngine:
    """An engine's `generate` with calls that can be paused."""

    def __init__(self, engine: Engine) -> None:
        """Wrap `engine`; it must accept `on_chunk` if any call passes one, see `Answers`."""
        self._engine = engine
        self._pauses = 0
        self._open = asyncio.Event()
        self._open.set()

    async def pause(self) -> None:
        """Interrupt the calls in progress, and hold back new ones."""
        self._open.clear()
        self._pauses += 1
        await self._engine.abort()

    def resume(self) -> None:
        """Continue all calls."""
        self._open.set()

    async def generate(self, request: GenerateRequest, on_chunk: OnChunk | None = None) -> GenerateOutput:
        """Return one continuation, joined from the parts between pauses. Errors are the engine's."""
        parts, rest, last = list[GenerateOutput](), request, list[GenerateChunk]()

        def forward(chunk: GenerateChunk) -> None:
            if chunk.finish is not None:
                last[:] = [chunk]  # whether the answer ends with it shows only then
            elif on_chunk is not None:
                on_chunk(chunk)

        while True:
            await self._open.wait()
            pauses = self._pauses
            if on_chunk is None:
                part = await self._engine.generate(rest)
            else:
                part = await cast(Answers, self._engine).generate(rest, forward)
            parts.append(part)
            finish: FinishReason | None = part.finish
            if finish is FinishReason.ABORT and self._pauses != pauses:
                rest = _after(request, parts)
                finish = None if rest.sampling.max_new_tokens else FinishReason.LENGTH
            if on_chunk is not None and (finish is not None or len(last[0].tokens)):
                extras = last[0].extras if len(parts) == 1 else _extras(parts)
                on_chunk(replace(last[0], finish=finish, extras=None if finish is None else extras))
            if finish is not None:
                return _joined(parts, finish)


def _joined(parts: list[GenerateOutput], finish: FinishReason) -> GenerateOutput:
    if len(parts) == 1:
        return parts[0] if parts[0].finish is finish else replace(parts[0], finish=finish)
    last = parts[-1]
    return GenerateOutput(
        [token for part in parts for token in part.tokens],
        [each for part in parts for each in part.log_probs],
        finish,
        min((version for part in parts for _, version in part.versions), default=last.weight_version),
        last.matched,
        _extras(parts),
    )


def _extras(parts: Sequence[GenerateOutput]) -> EngineExtras | None:
    return EngineExtras.joined([(part.extras, len(part.tokens), part.weight_version) for part in parts])


def _after(request: GenerateRequest, parts: list[GenerateOutput]) -> GenerateRequest:
    """The rest of a request; it samples with another seed."""
    made = [token for part in parts for token in part.tokens]
    before = request.sampling
    left, least = before.max_new_tokens - len(made), max(0, before.min_new_tokens - len(made))
    sampling = replace(before, max_new_tokens=left, min_new_tokens=least)
    seed = derive_seed(request.seed, len(parts))
    prompt = [*request.prompt, *made]
    return replace(
        request, prompt=prompt, sampling=sampling, seed=seed, num_generated=request.num_generated + len(made)
    )


# Calls: the engine as one sample sees it.

ATTEMPT = 0
"""Part of every call's seed. A repeated call uses the same one, so it samples the same tokens."""


class Calls:
    """The engine calls of one sample, and the values that its generator measured."""

    def __init__(
        self,
        engine: PausableEngine,
        policy: RolloutPolicy,
        sampling: SamplingParams,
        where: tuple[GroupId, int, SampleInFlight],
        want: frozenset[Extra] = frozenset(),
    ) -> None:
        """Set up the calls of one sample; `where` is its group, its index and its `SampleInFlight`."""
        group, index, self._state = where
        self.finished: list[Call] = []
        """Finished calls, in order of arrival."""
        self.measured: dict[str, list[float]] = {}
        """Measured values by name."""
        self._engine, self._policy, self._sampling, self._group = engine, policy, sampling, group
        self._want = want
        self._identity = (policy.seed, group, index)
        self._names: set[int | str] = set()
        self._unnamed = 0
        self._sessions: set[str] = set()
        self._begun = self._busy_since = time.monotonic()
        self._busy, self._busy_s = 0, 0.0

    def begin(self) -> None:
        """Start the generator's clock."""
        self._begun, self._busy_s = time.monotonic(), 0.0

    def note(self, samples: Sequence[Sample]) -> None:
        """Set the session of finished samples that have none, if all calls named the same one."""
        for sample in samples:
            if sample.session_id is None and len(self._sessions) == 1:
                (sample.session_id,) = self._sessions

    @property
    def non_generation_s(self) -> float:
        """Seconds outside of engine calls, spent in tools and environments; 0 with fewer than two calls."""
        return max(0.0, time.monotonic() - self._begun - self._busy_s) if len(self.finished) > 1 else 0.0

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        on_chunk: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        """Make one engine call; see `slime_core.roles.Generate`."""
        name = self._named(turn)
        names, finished = self._names, self.finished  # bound now: `restart` replaces both
        token = self._state.call_begins()
        self._busy_since = self._busy_since if self._busy else time.monotonic()
        self._busy += 1
        try:
            seed = seed_of_call(*self._identity, name)
            within = self._within_context(prompt, sampling or self._sampling)
            request = GenerateRequest(prompt, within, seed, self._group, session=session, media=media, want=self._want)
            made = await self._engine.generate(request, on_chunk)
        except BaseException:
            names.discard(name)
            raise
        finally:
            self._state.call_ends(token)
            self._busy -= 1
            self._busy_s += 0.0 if self._busy else time.monotonic() - self._busy_since
        if session is not None:
            self._sessions.add(session)
        finished.append(Call(len(prompt), made, () if made.extras is None else tuple(prompt)))
        return made

    def restart(self) -> None:
        """Forget all calls; see `slime_core.roles.GenerateContext`."""
        self.finished, self.measured = [], {}
        self._names, self._unnamed, self._sessions = set(), 0, set()
        self.begin()

    def measure(self, name: str, value: float) -> None:
        """Record a value; see `slime_core.roles.GenerateContext`."""
        if not name or not isfinite(value):
            raise ContractError(f"measured {name!r} = {value!r}; expected a name and a finite number")
        self.measured.setdefault(name, []).append(float(value))

    def _named(self, turn: str | None) -> int | str:
        name = self._unnamed if turn is None else turn
        if name in self._names:
            raise ContractError(
                f"two calls of the engine have the name turn={turn!r}, and would draw alike: name each call differently"
            )
        most = self._policy.max_turns
        if most is not None and len(self._names) >= most:
            raise LimitError(
                f"the sample has made its {most} calls of the engine (rollout_max_turns, ctx.max_turns): return what "
                "there is, with Status.TRUNCATED"
            )
        self._unnamed += turn is None
        self._names.add(name)
        return name

    def _within_context(self, prompt: Sequence[int], sampling: SamplingParams) -> SamplingParams:
        if (most := self._policy.max_context) is None:
            return sampling
        room = most - len(prompt)
        if room <= 0 < sampling.max_new_tokens:
            raise LimitError(
                f"a prompt of {len(prompt)} tokens leaves no room for an answer in a context of {most} "
                "(rollout_max_context_len, ctx.max_context)"
            )
        return sampling if sampling.max_new_tokens <= room else replace(sampling, max_new_tokens=room)


def seed_of_call(seed: int, group: GroupId, index: int, name: int | str) -> int:
    """The seed of a call of sample `index`; `name` is the call's name, or its number among unnamed calls, from 0."""
    return derive_seed(seed, *group, index, name, ATTEMPT)
