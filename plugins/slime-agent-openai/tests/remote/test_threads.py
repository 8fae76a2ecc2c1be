import asyncio
import threading

import pytest

from slime_agent_openai.remote_agents import Threads


def test_the_loop_goes_on_while_a_call_blocks() -> None:
    async def act() -> str:
        opened = threading.Event()
        threads = Threads(1)
        call = asyncio.create_task(threads.call(lambda: str(opened.wait(30))))
        await asyncio.sleep(0)
        opened.set()  # as nobody could who waited for it
        return await call

    assert asyncio.run(act()) == "True"


def test_what_it_raises_is_raised_here() -> None:
    async def act() -> None:
        await Threads(1).call(lambda: [][1])

    with pytest.raises(IndexError):
        asyncio.run(act())


def test_never_more_are_at_work_than_may_be_even_after_their_callers_have_gone() -> None:
    async def act() -> int:
        threads, at_work, most, gate = Threads(2), 0, 0, threading.Event()
        lock = threading.Lock()

        def block() -> None:
            nonlocal at_work, most
            with lock:
                at_work += 1
                most = max(most, at_work)
            gate.wait(30)
            with lock:
                at_work -= 1

        gone = [asyncio.create_task(threads.call(block)) for _ in range(2)]
        while at_work < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        others = [asyncio.create_task(threads.call(block)) for _ in range(5)]
        await asyncio.sleep(0.02)
        gate.set()
        await asyncio.gather(*others)
        return most

    assert asyncio.run(act()) == 2


def test_it_can_be_waited_for_what_nobody_waits_for() -> None:
    async def act() -> list[str]:
        threads, said, gate = Threads(1), list[str](), threading.Event()

        def block() -> None:
            gate.wait(30)
            said.append("ended")

        task = asyncio.create_task(threads.call(block))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        gate.set()
        await threads.wait(30)
        return said

    assert asyncio.run(act()) == ["ended"]


def test_a_call_that_outlives_the_loop_says_nothing() -> None:
    gate = threading.Event()

    async def act() -> None:
        threads = Threads(1)
        await threads.begin(lambda: gate.wait(30))
        await threads.wait(0.0)

    before = set(threading.enumerate())
    asyncio.run(act())
    (left,) = set(threading.enumerate()) - before
    assert left.daemon
    gate.set()
    left.join(30)
