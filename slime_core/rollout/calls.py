"""The engine as one sample's generator sees it: calls with derived seeds and limits, their extras, and their waits.

A call's seed follows from its name, so a repeated call gets the same seed. The extras of an answer are copied into
each sample whose tokens begin with that call's prompt and answer. What each sample waits for is kept, for the live
display and the spans of a run.

Example:

    calls = Calls(engine, CallLimits(seed=5, max_context=4096), policy.sampling, (group_id, 0, followed))
    out = await calls.generate(prompt, sampling, turn="agent-2/turn-7", tell=show)
    carry([(prompt, output)], samples)
"""

import asyncio
import logging
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar, Token
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from math import isfinite
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias, TypeVar

from slime_core.errors import ContractError, LimitError
from slime_core.roles import EngineExtras, Extra, GenerateChunk, GenerateOutput, GenerateRequest, SamplingParams
from slime_core.rollout.engine_calls import PausableEngine
from slime_core.sample import GroupId, Json, PrefixCacheInfo, Sample, SpecInfo
from slime_core.seeds import derive_seed

# Carry: what an engine said of its answers goes into the samples that a generator made of them, whichever it was.

COUNTERS = {"spec_info": SpecInfo(), "prefix_cache_info": PrefixCacheInfo()}
"""Fields that are summed, and what they are where nothing was counted."""
Call: TypeAlias = tuple[Sequence[int], GenerateOutput]
"""A prompt and what was answered."""


def carry(calls: Sequence[Call], samples: Sequence[Sample]) -> None:
    """Fill the fields of finished samples that the answers have something for.

    A column is filled where the calls have it of all of its sample: experts of every token, top-p sets of every token
    that is trained on. The counters of a call are counted once, in the first sample that it is part of, else in the
    first of all: it cost what it cost.
    """
    known = [_Known(tuple(prompt), tuple(out.tokens), out.extras) for prompt, out in calls if out.extras is not None]
    if not known or not samples:
        return
    wholes = [tuple(sample.tokens) for sample in samples]
    for sample, whole in zip(samples, wholes, strict=True):
        own = sorted((call for call in known if call.is_part_of(whole)), key=lambda call: len(call.prompt))
        if sample.rollout_routed_experts is None:
            sample.rollout_routed_experts = _experts(own, len(whole))
        if sample.rollout_top_p_token_offsets is None:
            sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = _top_p(own, sample)
    uncounted = {name: [getattr(sample, name) == nothing for sample in samples] for name, nothing in COUNTERS.items()}
    for call in known:
        owner = next((place for place, whole in enumerate(wholes) if call.is_part_of(whole)), 0)
        for name in COUNTERS:
            if (more := getattr(call.extras, name)) is not None and uncounted[name][owner]:
                _add(getattr(samples[owner], name), more)


class _Known(NamedTuple):
    """One call of the engine whose answer holds something to carry over."""

    prompt: tuple[int, ...]
    new: tuple[int, ...]
    extras: EngineExtras

    def is_part_of(self, whole: tuple[int, ...]) -> bool:
        """Whether a sample's tokens begin with the prompt and the answer."""
        begin, end = len(self.prompt), len(self.prompt) + len(self.new)
        return whole[begin:end] == self.new and whole[:begin] == self.prompt


def _experts(calls: Sequence[_Known], tokens: int) -> "array[int] | None":
    """The routed experts of each token, from the first call that has them: its log-probs were made with those."""
    whole, stride = array("i"), 0
    for prompt, new, extras in calls:
        if extras.routed_experts is not None and (seen := len(prompt) + len(new) - 1):
            whole += extras.routed_experts[len(whole) :]
            stride = len(extras.routed_experts) // seen
    return whole if whole and len(whole) == stride * (tokens - 1) else None


def _top_p(calls: Sequence[_Known], sample: Sample) -> "tuple[array[int], array[int]] | tuple[None, None]":
    kept: list[Sequence[int] | None] = [None] * sample.response_length
    for prompt, new, extras in calls:
        if (ids := extras.top_p_token_ids) is None or (offsets := extras.top_p_token_offsets) is None:
            continue
        begin = len(prompt) - sample.prompt_length
        for place in range(max(0, -begin), len(new)):
            kept[begin + place] = ids[offsets[place] : offsets[place + 1]]
    mask = sample.loss_mask or [1] * len(kept)
    if not any(kept) or any(bit and ids is None for bit, ids in zip(mask, kept, strict=True)):
        return None, None
    sizes = accumulate((len(ids or ()) for ids in kept), initial=0)
    return array("i", [each for ids in kept for each in ids or ()]), array("i", sizes)


def _add(total: SpecInfo | PrefixCacheInfo, more: SpecInfo | PrefixCacheInfo) -> None:
    for item in fields(total):
        setattr(total, item.name, getattr(total, item.name) + getattr(more, item.name))


# Waiting: what the samples in flight are waiting for, how many for what, and which of them for how long.

T = TypeVar("T")
Ended: TypeAlias = Callable[[GroupId, int | None, bool, Sequence[tuple[str, float]], float], None]
"""Told of a sample that is not in flight any more: group, index, whether it was of an evaluation, what it waited for
from when on, and when it ended, in seconds of `time.monotonic`."""
A_SLOT = "a free slot"
"""What a sample waits for before its turn."""
NOTHING = "its turn"
"""What a sample waits for that nothing was said of."""
FIRST_S = 25.0
"""Seconds without the end of a sample after which it is said: within half a minute."""
LOOK_S = 1.0
"""Seconds between two looks."""
MOST_MARKS = 1000
"""Changes of what a sample waits for that are kept; after these, the last one goes on until it ends."""
MOST_NAMED = 4
"""Samples that are named, the oldest first."""

log = logging.getLogger(__name__)


class Waiting:
    """The samples in flight. Each waits for one thing at a time, so that what is counted never falls below none."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self.ended = 0
        """Samples that are not in flight any more."""
        self.on_end: Ended | None = None
        """Whom to tell of each of them."""
        self._followed: dict[Followed, None] = {}

    def following(self, group: GroupId, index: int | None, *, evaluation: bool = False) -> "Followed":
        """A `with` of all that happens to one sample, in its task and in those that this starts."""
        return Followed(self, group, index, evaluation)

    @property
    def text(self) -> str:
        """Such as "engine: 37 samples, reward math: 2 samples"; "nothing" when none is in flight."""
        counts = Counter(each.what for each in tuple(self._followed) if each.what != NOTHING)
        return ", ".join(f"{what}: {n} sample{'s' * (n != 1)}" for what, n in sorted(counts.items())) or "nothing"

    @property
    def in_flight(self) -> int:
        """Samples under way that have a slot."""
        return sum(each.what != A_SLOT for each in tuple(self._followed))

    def oldest(self, most: int) -> list[str]:
        """The samples that have waited longest for one thing, each with its identity; those without a slot left out."""
        held_up = sorted((each for each in self._followed if each.what != A_SLOT), key=lambda each: each.since)
        return [each.told(time.monotonic()) for each in held_up[:most]]


class Followed:
    """One sample in flight."""

    __slots__ = (
        "_calls",
        "_evaluation",
        "_group",
        "_index",
        "_marks",
        "_token",
        "_waiting",
        "generator",
        "place",
        "since",
        "what",
    )

    def __init__(self, waiting: Waiting, group: GroupId, index: int | None, evaluation: bool) -> None:
        """Nothing has happened to it."""
        self.what, self.place, self.generator = NOTHING, "", ""
        self.since = 0.0
        self._calls = 0
        self._waiting, self._group, self._index, self._evaluation = waiting, group, index, evaluation
        self._marks: list[tuple[str, float]] = []
        self._token: Token[Followed | None] | None = None

    def waits_for(self, what: str) -> None:
        """It waits for this from now on."""
        self.what, self.since = what, time.monotonic()
        self._mark(what, self.since)

    def is_at(self, place: str) -> None:
        """Which of several engines its call is made of."""
        self.place = place
        marks = self._marks
        if marks and marks[-1][0] == "engine":
            marks[-1] = (place, marks[-1][1])
        else:  # one has been asked before
            self._mark(place, time.monotonic())

    def _mark(self, what: str, at: float) -> None:
        if len(self._marks) < MOST_MARKS:
            self._marks.append((what, at))

    def call_begins(self) -> "Token[Followed | None]":
        """One more call of the engine, in whatever task it is made; returns what ends it."""
        self._calls += 1
        if self._calls == 1:
            self.waits_for("engine")
        return _current.set(self)

    def call_ends(self, token: "Token[Followed | None]") -> None:
        """One call fewer; after the last one it is its generator's turn, unless that has ended already."""
        _current.reset(token)
        self._calls -= 1
        if not self._calls and self.what == "engine":
            self.waits_for("generator")

    def told(self, now: float) -> str:
        """Which it is, and for how long it has waited for what."""
        where = self.place if self.what == "engine" and self.place else self.what
        made = f" (generator {self.generator})" if self.generator else ""
        return f"sample {self._index} of group {self._group}, {now - self.since:.0f} s in {where}{made}"

    def __enter__(self) -> "Followed":
        """It begins."""
        self.since = time.monotonic()
        self._mark(self.what, self.since)
        self._waiting._followed[self] = None
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ends."""
        assert self._token is not None, "it was entered"
        _current.reset(self._token)
        del self._waiting._followed[self]
        self._waiting.ended += 1
        if self._waiting.on_end is not None:
            self._waiting.on_end(self._group, self._index, self._evaluation, self._marks, time.monotonic())


_current: ContextVar[Followed | None] = ContextVar("sample in flight", default=None)


def waits_at(place: str) -> None:
    """Say which of several engines the current sample waits for."""
    if (followed := _current.get()) is not None:
        followed.is_at(place)


async def within(call: Awaitable[T], what: str) -> T:
    """Await a call, while the current sample waits for `what` or for what the call says itself."""
    if (followed := _current.get()) is not None:
        followed.waits_for(what)
    return await call


class LongWaits:
    """Says what a rollout waits for when no sample has ended for long, and again after twice as long."""

    def __init__(self, waiting: Waiting, tell: Callable[[str], None], first_s: float = FIRST_S) -> None:
        """Look at nothing yet; `tell` is given a line of text."""
        self._waiting, self._tell, self._first_s = waiting, tell, first_s
        self._ended, self._since, self._next_s = -1, 0.0, first_s
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Look from now on."""
        self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        waiting, now = self._waiting, time.monotonic()
        if waiting.ended != self._ended or not waiting.in_flight:
            self._ended, self._since, self._next_s = waiting.ended, now, self._first_s
        elif now - self._since >= self._next_s:
            self._next_s *= 2
            text = self._text(now - self._since)
            log.info(text)
            self._tell(text)
        self._timer = asyncio.get_running_loop().call_later(min(LOOK_S, self._first_s / 4), self._look)

    def _text(self, seconds: float) -> str:
        waiting = self._waiting
        named = waiting.oldest(MOST_NAMED)
        more = f"; and {count} more" if (count := waiting.in_flight - len(named)) > 0 else ""
        return f"no sample ended for {seconds:.0f} s; waiting for {waiting.text}: {'; '.join(named)}{more}"


# Calls: the engine as one sample sees it, each call with a name that its seed follows from, within the run's limits.

ATTEMPT = 0
"""A call that is made again has the seed that it had: its sample is as if nothing had failed."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the calls of every sample keep to."""

    seed: int
    """The run's."""
    max_context: int | None = None
    """Tokens of prompt and answer together; None: as many as the engine takes."""
    max_turns: int | None = None
    """Calls of one sample; None: as many as it makes."""


class Calls:
    """The calls of one sample, and what its generator measured."""

    def __init__(
        self,
        engine: PausableEngine,
        limits: CallLimits,
        sampling: SamplingParams,
        where: tuple[GroupId, int, Followed],
        want: frozenset[Extra] = frozenset(),
    ) -> None:
        """None yet.

        Args:
            engine: what answers.
            limits: what the calls keep to.
            sampling: of calls that do not say how.
            where: the sample's group, its number in it, and the sample in flight.
            want: what training wants of each answer beyond tokens and log-probs.
        """
        group, index, self._followed = where
        self.answers: list[GenerateOutput] = []
        """In the order in which they came."""
        self.known: list[Call] = []
        """Prompts and answers of those that say more than tokens."""
        self.measured: dict[str, list[float]] = {}
        """Values by name."""
        self._engine, self._limits, self._sampling, self._group = engine, limits, sampling, group
        self._want = want
        self._identity = (limits.seed, group, index)
        self._names: set[int | str] = set()
        self._unnamed = 0
        self._sessions: set[str] = set()
        self._begun = self._busy_since = time.monotonic()
        self._busy, self._busy_s = 0, 0.0

    def begin(self) -> None:
        """The generator begins: its time counts from now on."""
        self._begun, self._busy_s = time.monotonic(), 0.0

    def note(self, samples: Sequence[Sample]) -> None:
        """Give finished samples the session that all calls named, where their generator gave none."""
        for sample in samples:
            if sample.session_id is None and len(self._sessions) == 1:
                (sample.session_id,) = self._sessions

    @property
    def elsewhere_s(self) -> float:
        """Seconds without any call, between several: those of tools and environments.

        It is a metric and no field of samples, which are the same in every bit in two runs of one seed.
        """
        return max(0.0, time.monotonic() - self._begun - self._busy_s) if len(self.answers) > 1 else 0.0

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        tell: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        """One engine call; see `slime_core.roles.Generate`."""
        name, asked = self._named(turn), sampling or self._sampling
        names, answers, known = self._names, self.answers, self.known  # of a call that `anew` forgets, forgotten ones
        token = self._followed.call_begins()
        self._busy_since = self._busy_since if self._busy else time.monotonic()
        self._busy += 1
        try:
            seed = seed_of_call(*self._identity, name)
            asked = self._within_context(prompt, asked)
            request = GenerateRequest(prompt, asked, seed, self._group, session=session, media=media, want=self._want)
            made = await (self._engine.generate(request) if tell is None else self._told(request, tell))
        except BaseException:
            names.discard(name)
            raise
        finally:
            self._followed.call_ends(token)
            self._busy -= 1
            self._busy_s += 0.0 if self._busy else time.monotonic() - self._busy_since
        if session is not None:
            self._sessions.add(session)
        answers.append(made)
        if made.extras is not None:
            known.append((tuple(prompt), made))
        return made

    def anew(self) -> None:
        """Forget all calls; see `slime_core.roles.GenerateContext`."""
        self.answers, self.known, self.measured = [], [], {}
        self._names, self._unnamed, self._sessions = set(), 0, set()
        self.begin()

    def measure(self, name: str, value: float) -> None:
        """Note a value; see `slime_core.roles.GenerateContext`."""
        if not name or not isfinite(value):
            raise ContractError(f"measured {name!r} = {value!r}; expected a name and a finite number")
        self.measured.setdefault(name, []).append(float(value))

    async def _told(self, request: GenerateRequest, tell: Callable[[GenerateChunk], None]) -> GenerateOutput:
        chunks: list[GenerateChunk] = []
        async with aclosing(self._engine.stream(request)) as parts:
            async for chunk in parts:
                chunks.append(chunk)
                tell(chunk)
        return GenerateOutput.joined(chunks)

    def _named(self, turn: str | None) -> int | str:
        """The call's name, which no other one has; the number of the calls that came without a name, if it has none."""
        name = self._unnamed if turn is None else turn
        if name in self._names:
            raise ContractError(
                f"it called the engine twice by the name turn={turn!r}, and both would draw alike: name each call of a "
                "sample differently"
            )
        most = self._limits.max_turns
        if most is not None and len(self._names) >= most:
            raise LimitError(
                f"the sample has made its {most} calls of the engine (rollout_max_turns): return what there is, with "
                "Status.TRUNCATED (ctx.max_turns says how many there may be)"
            )
        self._unnamed += turn is None
        self._names.add(name)
        return name

    def _within_context(self, prompt: Sequence[int], sampling: SamplingParams) -> SamplingParams:
        """The same sampling, its budget no larger than the context's room."""
        if (most := self._limits.max_context) is None:
            return sampling
        room = most - len(prompt)
        if room <= 0 < sampling.max_new_tokens:
            raise LimitError(
                f"a prompt of {len(prompt)} tokens leaves no room for an answer in a context of {most} "
                "(rollout_max_context_len, else the model's positions; ctx.max_context)"
            )
        return sampling if sampling.max_new_tokens <= room else replace(sampling, max_new_tokens=room)


def seed_of_call(seed: int, group: GroupId, index: int, name: int | str) -> int:
    """The seed of a call: the same in whatever order calls are made, and when it is made again.

    Args:
        seed: the run's.
        group: of the sample.
        index: the sample's number in its group.
        name: the call's, or its number among those without one, from 0.
    """
    return derive_seed(seed, *group, index, name, ATTEMPT)
