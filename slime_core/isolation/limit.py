"""limited: await a call under a time limit that costs nothing where nothing is awaited.

Most rewards end without a suspension, and need no timer: `asyncio.timeout` would cost them tens of microseconds.
"""

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """A call that ended before its first suspension."""

    value: T
    """What it returned."""


def begin(call: Awaitable[T]) -> Finished[T] | Awaitable[T]:
    """Run a coroutine up to its first suspension, in this task; returns its end, or the rest to await."""
    if not isinstance(call, types.CoroutineType):
        return call
    try:
        pending = call.send(None)
    except StopIteration as end:
        return Finished(cast(T, end.value))
    return _resume(call, pending)


async def limited(call: Awaitable[T], seconds: float | None) -> T:
    """Await a call for at most this long.

    Raises:
        TimeoutError: it took longer; it was cancelled.
    """
    begun = begin(call)
    if isinstance(begun, Finished):
        return begun.value
    async with asyncio.timeout(seconds):
        return await begun


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
