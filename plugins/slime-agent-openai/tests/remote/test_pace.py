import asyncio
from itertools import pairwise

from slime_agent_openai.remote_agents import Pace


def turns(a_second: float, count: int) -> list[float]:
    """When some that ask at once have their turns, by a clock that only sleeping moves."""

    async def act() -> list[float]:
        loop, pace, now, had = asyncio.get_running_loop(), Pace(a_second), 100.0, list[float]()

        async def one() -> None:
            await pace()
            had.append(loop.time())

        loop.time = lambda: now  # type: ignore[method-assign]
        asked = [asyncio.create_task(one()) for _ in range(count)]
        while not all(task.done() for task in asked):
            await asyncio.sleep(0)
            now += 0.01
        return had

    return asyncio.run(act())


def test_all_that_come_at_once_have_their_turns_one_by_one() -> None:
    had = turns(10.0, 4)
    assert [round(later - earlier, 1) for earlier, later in pairwise(had)] == [0.1] * 3


def test_who_comes_late_does_not_wait() -> None:
    async def act() -> list[bool]:
        pace, waited = Pace(0.001), list[bool]()
        for later in (0.0, 2_000.0):
            asyncio.get_running_loop().time = lambda later=later: 5_000.0 + later  # type: ignore[method-assign]
            turn = asyncio.ensure_future(pace())
            await asyncio.sleep(0)
            waited.append(not turn.done())
            turn.cancel()
        return waited

    assert asyncio.run(act()) == [False, False]
