"""Waiting: what the samples in flight are waiting for, for the display; and patience with a limit."""

import asyncio
import types
from collections import Counter
from collections.abc import Awaitable, Coroutine, Generator
from typing import TypeVar, cast

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


async def within(call: Awaitable[T], seconds: float, waiting: Waiting, what: str) -> T:
    """Await a call under a time limit, counted as waiting for `what`.

    A coroutine is run up to its first suspension by hand: most rewards end there, and need no timer.

    Raises:
        TimeoutError: it took longer; it was cancelled.
    """
    if not isinstance(call, types.CoroutineType):
        rest: Awaitable[T] = call
    else:
        try:
            pending = call.send(None)
        except StopIteration as end:
            return cast(T, end.value)
        rest = _resume(call, pending)
    waiting.enter(what)
    try:
        async with asyncio.timeout(seconds):
            return await rest
    finally:
        waiting.leave(what)


@types.coroutine
def _resume(call: Coroutine[object, object, T], pending: object) -> Generator[object, object, T]:
    """Continue a coroutine that is suspended on `pending`: hand that to the loop, then delegate as `await` does."""
    while True:
        try:
            yield pending
        except BaseException as error:
            try:
                pending = call.throw(error)
            except StopIteration as end:
                return cast(T, end.value)
        else:
            return cast(T, (yield from call))
