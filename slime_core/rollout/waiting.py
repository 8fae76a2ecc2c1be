"""Waiting: what the samples in flight are waiting for, for the display."""

from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from slime_core.isolation import Finished, begin

T = TypeVar("T")


class Waiting:
    """Samples by what they wait for."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self._counts: Counter[str] = Counter()

    def enter(self, what: str) -> None:
        """One more sample waits for this."""
        self._counts[what] += 1

    def leave(self, what: str) -> None:
        """One fewer."""
        self._counts[what] -= 1

    @property
    def text(self) -> str:
        """Such as "engine: 37 samples, reward math: 2 samples"; "nothing" when none is in flight."""
        counts = [f"{what}: {count} sample{'s' * (count != 1)}" for what, count in self._counts.items() if count > 0]
        return ", ".join(counts) or "nothing"


async def within(call: Awaitable[T], waiting: Waiting, what: str) -> T:
    """Await a call, counted as waiting for `what` from its first suspension on."""
    begun = begin(call)
    if isinstance(begun, Finished):
        return begun.value
    waiting.enter(what)
    try:
        return await begun
    finally:
        waiting.leave(what)
