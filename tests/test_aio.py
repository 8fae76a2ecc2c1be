"""Calls that run at once: gather, run while, slots."""

import asyncio
from collections.abc import Coroutine
from typing import cast

import pytest

from slime_core.aio import Slots, gather_or_cancel, run_while


async def answer(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def fail() -> None:
    raise LookupError("a rank died")


async def never(ended: list[str]) -> str:
    try:
        await asyncio.Event().wait()
        return "woken"
    finally:
        ended.append("cancelled")


async def at_once() -> None:
    """Ends without an error, as a closed group does."""


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_failure_cancels_the_call() -> None:
    ended: list[str] = []
    with pytest.raises(LookupError, match="a rank died"):
        asyncio.run(run_while(fail(), never(ended)))
    assert ended == ["cancelled"]


def test_the_call_continues_while_nothing_fails() -> None:
    assert asyncio.run(run_while(at_once(), answer(0.01))) == "done"
    assert asyncio.run(run_while(for_ever(), answer(0.01))) == "done"


def test_cancelling_ends_both() -> None:
    ended: list[str] = []

    async def cancelled() -> None:
        async with asyncio.timeout(0.01):
            await run_while(for_ever(), never(ended))

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert ended == ["cancelled"]


def test_all_calls_run_at_once() -> None:
    met = asyncio.Barrier(2)

    async def meet() -> None:
        await met.wait()

    asyncio.run(gather_or_cancel(meet(), meet()))


def test_the_first_error_cancels_the_others() -> None:
    ended: list[str] = []

    async def go() -> None:
        with pytest.raises(LookupError, match="a rank died"):
            await gather_or_cancel(cast(Coroutine[object, object, None], never(ended)), fail())
        assert ended == ["cancelled"]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(go())


def test_a_released_slot_skips_a_cancelled_waiter() -> None:
    async def ran() -> list[str]:
        slots, seen = Slots(1), []

        async def wait(name: str) -> None:
            await slots.acquire()
            seen.append(name)

        await slots.acquire()
        first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
        await asyncio.sleep(0)
        first.cancel()
        slots.release()  # before the first one's task has run again
        ended = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        slots.release()
        await slots.acquire()
        return seen

    assert asyncio.run(ran()) == ["second"]
