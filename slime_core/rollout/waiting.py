"""Waiting: what the samples in flight are waiting for, how many for what, and which of them for how long.

Example:

    with waiting.following(group.id, sample.index):
        await within(generator(sample, context), "generator")
    waiting.text                # "engine: 37 samples, reward math: 2 samples"
    waiting.oldest(3)           # ["sample 3 of group train:e0:r5:d5, 31 s in engine 2 (generator single_turn)"]
    with LongWaits(waiting, display.message):       # says so when no sample has ended for long, on a running loop
        await scheduler.collect(...)
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from slime_core.sample import GroupId

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
