"""Waiting: what the samples in flight are waiting for, how many for what, and which of them for how long.

Example:

    with waiting.following(group.id, sample.index):
        await within(generator(sample, context), waiting, "generator")
    waiting.text                # "engine: 37 samples, reward math: 2 samples"
    waiting.oldest(3)           # ["sample 3 of group train:e0:r5:d5, 31 s in engine 2 (generator single_turn)"]
"""

import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TypeVar

from slime_core.isolation import Finished, begin
from slime_core.sample import GroupId

T = TypeVar("T")


class Waiting:
    """Samples by what they wait for."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self.ended = 0
        """Samples that are not in flight any more."""
        self._counts: Counter[str] = Counter()
        self._followed: dict[Followed, None] = {}

    def enter(self, what: str) -> None:
        """One more sample, the current one, waits for this."""
        self._counts[what] += 1
        _waits_for(what)

    def count(self, what: str) -> None:
        """The same, where it is known what the current sample waits for."""
        self._counts[what] += 1

    def leave(self, what: str) -> None:
        """One fewer."""
        self._counts[what] -= 1

    def following(self, group: GroupId, index: int | None) -> "Followed":
        """A `with` of all that happens to one sample, in its task and in those that this starts."""
        return Followed(self, group, index)

    @property
    def text(self) -> str:
        """Such as "engine: 37 samples, reward math: 2 samples"; "nothing" when none is in flight."""
        counts = [
            f"{what}: {count} sample{'s' * (count != 1)}" for what, count in tuple(self._counts.items()) if count > 0
        ]
        return ", ".join(counts) or "nothing"

    @property
    def in_flight(self) -> int:
        """Samples that are followed and not held up by the others for a slot."""
        return len(self._followed) - self._counts[A_SLOT]

    def oldest(self, most: int) -> Sequence[str]:
        """The samples that have waited longest for one thing, each with its identity; those without a slot left out."""
        held_up = sorted((each for each in self._followed if each.what != A_SLOT), key=lambda each: each.since)
        return [each.told(time.monotonic()) for each in held_up[:most]]


A_SLOT = "a free slot"
"""What a sample waits for before its turn."""


class Followed:
    """One sample in flight."""

    __slots__ = ("_group", "_index", "_token", "_waiting", "generator", "place", "since", "what")

    def __init__(self, waiting: Waiting, group: GroupId, index: int | None) -> None:
        """Nothing has happened to it."""
        self.what, self.place, self.generator = "its turn", "", ""
        self.since = 0.0
        self._waiting, self._group, self._index = waiting, group, index
        self._token: Token[Followed | None] | None = None

    def told(self, now: float) -> str:
        """Which it is, and for how long it has waited for what."""
        where = self.place if self.what == "engine" and self.place else self.what
        made = f" (generator {self.generator})" if self.generator else ""
        return f"sample {self._index} of group {self._group}, {now - self.since:.0f} s in {where}{made}"

    def __enter__(self) -> None:
        """It begins."""
        self.since = time.monotonic()
        self._waiting._followed[self] = None
        self._token = _current.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ends."""
        assert self._token is not None, "it was entered"
        _current.reset(self._token)
        del self._waiting._followed[self]
        self._waiting.ended += 1


_current: ContextVar[Followed | None] = ContextVar("sample in flight", default=None)


def _waits_for(what: str) -> None:
    if (followed := _current.get()) is not None:
        followed.what, followed.since = what, time.monotonic()


def waits_at(place: str) -> None:
    """Say which of several engines the current sample waits for."""
    if (followed := _current.get()) is not None:
        followed.place = place


def runs_by(generator: str) -> None:
    """Say which generator runs the current sample."""
    if (followed := _current.get()) is not None:
        followed.generator = generator


async def within(call: Awaitable[T], waiting: Waiting, what: str) -> T:
    """Await a call, counted as waiting for `what` from its first suspension on."""
    _waits_for(what)  # before it begins: it may at once wait for something else, such as an engine
    begun = begin(call)
    if isinstance(begun, Finished):
        return begun.value
    waiting.count(what)
    try:
        return await begun
    finally:
        waiting.leave(what)
