"""Calls and gates: what is under way is aborted until it has ended, and nothing begins meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from slime_core.errors import WorkerError
from slime_engine_sglang.calls import Calls, Gate


class Deaf:
    """A server that leaves the first aborts of each request aside, as one does that it has not heard of yet."""

    def __init__(self, deaf: int) -> None:
        self.left = deaf
        self.told: list[str | None] = []
        self.ended = asyncio.Event()

    async def abort(self, rid: str | None) -> None:
        self.told.append(rid)
        self.left -= 1
        if self.left < 0:
            self.ended.set()

    async def answer(self) -> str:
        await self.ended.wait()
        return "aborted"


def played(deaf: int, play: Callable[[Deaf, Calls], Awaitable[None]], common: Gate | None = None) -> Deaf:
    async def main() -> Deaf:
        server = Deaf(deaf)
        calls = Calls(server.abort, common)
        async with asyncio.timeout(10):
            await play(server, calls)
            await calls.close()
        return server

    return asyncio.run(main())


def test_all_are_aborted_again_and_again_until_they_are_gone() -> None:
    async def play(server: Deaf, calls: Calls) -> None:
        asked = [asyncio.create_task(calls.finished(name, server.answer())) for name in "ab"]
        await asyncio.sleep(0)
        await calls.abort_all()
        assert [await each for each in asked] == ["aborted"] * 2
        assert not calls.busy

    assert played(4, play).told == [None] * 5


def test_one_that_nobody_waits_for_is_aborted_by_its_id_until_it_is_gone() -> None:
    async def play(server: Deaf, calls: Calls) -> None:
        asked = asyncio.create_task(calls.finished("a", server.answer()))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
        await server.ended.wait()

    assert played(3, play).told == ["a"] * 4


def test_an_abort_that_fails_is_tried_again() -> None:
    class Failing(Deaf):
        async def abort(self, rid: str | None) -> None:
            await super().abort(rid)
            if self.left >= 0:
                raise WorkerError("no answer")

    async def main() -> list[str | None]:
        server = Failing(2)
        calls = Calls(server.abort)
        asked = asyncio.create_task(calls.finished("a", server.answer()))
        await asyncio.sleep(0)
        await calls.abort_all()
        await asked
        return server.told

    assert asyncio.run(main()) == [None] * 3


def test_what_comes_while_all_are_aborted_waits_for_that_be_it_another_engines() -> None:
    common = Gate()

    async def play(server: Deaf, calls: Calls) -> None:
        others = Calls(server.abort, common)
        asked = asyncio.create_task(calls.finished("a", server.answer()))
        await asyncio.sleep(0)
        aborting = asyncio.create_task(calls.abort_all())
        await asyncio.sleep(0)
        for each in (calls, others):
            turn = asyncio.create_task(each.turn())
            await asyncio.sleep(0)
            assert not turn.done()
            turn.cancel()
        await aborting
        await asyncio.gather(asked, calls.turn(), others.turn())

    played(2, play, common)


def test_weights_wait_for_a_whole_and_aborts_do_not() -> None:
    async def main() -> list[str]:
        gate, order = Gate(), list[str]()

        async def switch() -> None:
            async with gate.held():
                order.append("switched")

        with gate.whole():
            switching = asyncio.create_task(switch())
            await asyncio.sleep(0)
            assert gate.is_shut
            with gate.shut():
                order.append("aborted")
            await asyncio.sleep(0)
        await switching
        assert not gate.is_shut
        return order

    assert asyncio.run(main()) == ["aborted", "switched"]
