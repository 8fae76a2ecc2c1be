"""Virtual time, and engines that slow down under load."""

import asyncio
import statistics
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams
from slime_simulate import Fleet, FleetShape, Lengths, VirtualLoop

T = TypeVar("T")
EVEN = Lengths(mean=10.0, sigma=0.0)


def in_virtual_time(work: Coroutine[object, object, T]) -> tuple[T, float]:
    """A result, and the virtual seconds that it took."""

    async def timed() -> tuple[T, float]:
        return await work, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(timed())


async def ask(fleet: Fleet, *prompt: int, budget: int = 10_000) -> GenerateOutput:
    return await fleet.generate(GenerateRequest(prompt, SamplingParams(budget), 0))


def test_requests_slow_each_other_down_on_one_engine() -> None:
    async def both(engines: int) -> list[GenerateOutput]:
        fleet = Fleet(FleetShape(engines, slots=2, slowdown=0.5), EVEN, seed=0)
        return list(await asyncio.gather(ask(fleet, 1), ask(fleet, 2)))

    together, apart = in_virtual_time(both(1)), in_virtual_time(both(2))
    assert [len(output.tokens) for output in together[0]] == [10, 10]
    assert together[1] == pytest.approx(15.0)
    assert apart[1] == pytest.approx(10.0)


def test_a_request_that_is_left_alone_speeds_up() -> None:
    async def two() -> None:
        fleet = Fleet(FleetShape(1, slots=2, slowdown=1.0), EVEN, seed=0)
        await asyncio.gather(ask(fleet, 1), ask(fleet, 2, budget=4))

    _, took = in_virtual_time(two())
    assert took == pytest.approx(4 * 2 + 6)


def test_an_aborted_request_keeps_its_tokens_and_goes_on_to_the_same_length() -> None:
    async def interrupted() -> tuple[GenerateOutput, GenerateOutput]:
        fleet = Fleet(FleetShape(1), EVEN, seed=0)
        asked = asyncio.create_task(ask(fleet, 1))
        await asyncio.sleep(4.5)
        await fleet.abort()
        first = await asked
        fleet.version = 1
        return first, await ask(fleet, 1, *first.tokens)

    (first, rest), _ = in_virtual_time(interrupted())
    assert (len(first.tokens), first.finish, first.weight_version) == (4, FinishReason.ABORT, 0)
    assert (len(rest.tokens), rest.finish, rest.weight_version) == (6, FinishReason.STOP, 1)


def test_a_cancelled_request_gives_its_place_up() -> None:
    async def cancelled() -> None:
        fleet = Fleet(FleetShape(1, slots=2, slowdown=1.0), EVEN, seed=0)
        other = asyncio.create_task(ask(fleet, 2))
        await asyncio.sleep(2)
        other.cancel()
        await ask(fleet, 1)

    _, took = in_virtual_time(cancelled())
    assert took == pytest.approx(12.0)


def test_lengths_have_the_mean_and_the_spread_that_were_asked_for() -> None:
    lengths = [Lengths(mean=1000, sigma=0.5, longest=10**9).of(7, number) for number in range(20_000)]
    assert statistics.mean(lengths) == pytest.approx(1000, rel=0.02)
    assert statistics.median(lengths) == pytest.approx(882.5, rel=0.02)
    assert max(Lengths(mean=64, sigma=2, longest=100).of(7, number) for number in range(1000)) == 100
