"""Scheduler: rollouts are a function of the draws, nothing is lost, and nobody waits for ever."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_core.errors import ContractError, RolloutError, WorkerError
from slime_core.events import GroupsDone, SamplesDone
from slime_core.roles import (
    Decision,
    Drop,
    FilterContext,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Keep,
    KeepIfShort,
)
from slime_core.rollout import NonzeroStd, RolloutResult
from slime_core.sample import Group
from tests.rollout.bench import Bench, ScriptedEngine, make_bench, output_of, reward_use

examples = settings(max_examples=40)


class Thirds:
    """Keeps a group in three."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        return Keep() if group.id.draw % 3 == 0 else Drop(f"rest_{group.id.draw % 3}")


class ThirdsIfPossible:
    """Prefers a group in three."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        return Keep() if group.id.draw % 3 == 0 else KeepIfShort("rest")


def plain(result: RolloutResult) -> object:
    groups = [[group.to_dict() for group in part] for part in (result.kept, result.dropped)]
    return groups, dict(result.reasons), dict(result.metrics)


def draws(groups: object) -> list[int]:
    return [group.id.draw for group in groups]  # type: ignore[attr-defined]


@examples
@given(jitter=st.integers(1, 2**31), slots=st.integers(1, 9))
def test_the_order_of_arrival_does_not_matter(jitter: int, slots: int) -> None:
    straight = make_bench(group_filter=Thirds(), n=4)
    jittery = make_bench(group_filter=Thirds(), n=4, engine=ScriptedEngine(jitter=jitter), max_concurrency=slots)
    assert plain(asyncio.run(jittery.scheduler.collect(0, 5))) == plain(asyncio.run(straight.scheduler.collect(0, 5)))
    assert jittery.engine.most_at_once <= slots


def test_without_a_filter_exactly_what_was_wanted_is_drawn() -> None:
    bench = make_bench(n=3)
    result = asyncio.run(bench.scheduler.collect(0, 4))
    assert draws(result.kept) == [0, 1, 2, 3]
    assert (result.dropped, bench.source.drawn) == ([], 4)
    assert [sample.reward for sample in result.kept[0].samples] == [1.0, 0.0, 1.0]


def test_a_filter_draws_waves_until_enough_are_kept_and_surplus_is_returned() -> None:
    bench = make_bench(group_filter=Thirds(), over_sampling_batch_size=4)
    result = asyncio.run(bench.scheduler.collect(0, 3))
    assert draws(result.kept) == [0, 3, 6]
    assert draws(result.dropped) == [1, 2, 4, 5, 7]
    bench = make_bench(group_filter=Thirds(), over_sampling_batch_size=7)
    assert draws(asyncio.run(bench.scheduler.collect(0, 1)).kept) == [0, 3, 6]


def test_second_choices_fill_a_rollout_instead_of_another_wave() -> None:
    bench = make_bench(group_filter=ThirdsIfPossible(), over_sampling_batch_size=6)
    result = asyncio.run(bench.scheduler.collect(0, 4))
    assert draws(result.kept) == [0, 1, 2, 3]
    assert draws(result.dropped) == [4, 5]
    assert set(result.reasons.values()) == {"rest"}


def test_a_filter_that_keeps_nothing_stops_with_its_reasons() -> None:
    bench = make_bench(group_filter=NonzeroStd(), n=1, max_filter_waves=3)
    with pytest.raises(
        RolloutError, match=r"(?s)rollout 7: 3 waves .* 0 of the 2 groups.*6 x zero_std_1\.0.*max-filter-waves"
    ):
        asyncio.run(bench.scheduler.collect(7, 2))


def test_wanting_nothing_draws_nothing() -> None:
    bench = make_bench()
    result = asyncio.run(bench.scheduler.collect(0, 0))
    assert (result.kept, result.metrics, bench.source.drawn, bench.events) == ([], {}, 0, [])


def test_events_come_once_a_wave_and_hold_everything() -> None:
    bench = make_bench(group_filter=Thirds(), over_sampling_batch_size=3)
    result = asyncio.run(bench.scheduler.collect(2, 2))
    assert [type(event) for event in bench.events] == [SamplesDone, GroupsDone] * 2
    samples = [sample for event in bench.events[::2] for sample in event.samples]
    assert len(samples) == 2 * bench.source.drawn
    assert [group for event in bench.events[1::2] for group in event.kept] == result.kept
    assert {key: reason for event in bench.events[1::2] for key, reason in event.dropped.items()} == result.reasons
    assert {event.rollout_id for event in bench.events} == {2}


def test_kept_and_dropped_groups_are_frozen() -> None:
    result = asyncio.run(make_bench(group_filter=Thirds()).scheduler.collect(0, 2))
    for group in (*result.kept, *result.dropped):
        assert {sample.tokens.typecode for sample in group.samples} == {"i"}


def test_a_filter_of_the_wrong_type_is_named() -> None:
    bench = make_bench(group_filter=lambda group, ctx: True)
    with pytest.raises(ContractError, match="group filter of plugin tests, group numbers:e0:r0:d0"):
        asyncio.run(bench.scheduler.collect(0, 1))
    assert draws(bench.source.back) == [0]


@examples
@given(ticks=st.integers(0, 60), jitter=st.integers(1, 99))
def test_a_cancelled_rollout_gives_everything_back_and_runs_again_to_the_same_end(ticks: int, jitter: int) -> None:
    whole = plain(asyncio.run(make_bench(group_filter=Thirds(), n=3).scheduler.collect(0, 4)))
    bench = make_bench(group_filter=Thirds(), n=3, engine=ScriptedEngine(jitter=jitter), max_concurrency=5)

    async def cancel_and_repeat() -> RolloutResult:
        task = asyncio.create_task(bench.scheduler.collect(0, 4))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if task.done():
            return await task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert bench.engine.running == 0
        assert draws(bench.source.back) == list(range(bench.source.drawn))
        return await bench.scheduler.collect(0, 4)

    assert plain(asyncio.run(cancel_and_repeat())) == whole


def test_interrupted_groups_go_back_and_are_run_again() -> None:
    interrupted = []

    async def answer(request: GenerateRequest) -> GenerateOutput:
        if request.prompt[-1] == 1001 and len(interrupted) < 2:
            interrupted.append(request)
            return output_of(request, FinishReason.ABORT)
        return output_of(request)

    whole = asyncio.run(make_bench().scheduler.collect(0, 3))
    bench = make_bench(engine=ScriptedEngine(answer))
    result = asyncio.run(bench.scheduler.collect(0, 3))
    assert draws(result.kept) == [0, 2, 1]
    assert bench.source.drawn == 3
    by_draw = sorted(result.kept, key=lambda group: group.id)
    assert [group.to_dict() for group in by_draw] == [group.to_dict() for group in whole.kept]


def test_an_engine_that_only_interrupts_does_not_run_for_ever() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        return output_of(request, FinishReason.ABORT)

    bench = make_bench(engine=ScriptedEngine(answer), max_filter_waves=4)
    with pytest.raises(RolloutError, match="all were interrupted"):
        asyncio.run(bench.scheduler.collect(0, 2))
    assert draws(bench.source.back) == [0, 1]


def test_a_dead_engine_ends_the_rollout_with_its_own_error() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        raise WorkerError("worker 1 of engine died: signal 9")

    bench = make_bench(engine=ScriptedEngine(answer))
    with pytest.raises(WorkerError, match="signal 9"):
        asyncio.run(bench.scheduler.collect(0, 3))
    assert draws(bench.source.back) == [0, 1, 2]


def test_it_says_what_it_waits_for() -> None:
    async def never(*arguments: object) -> object:
        return await asyncio.Event().wait()

    async def watch(bench: Bench) -> str:
        assert bench.scheduler.waiting_for == "nothing"
        task = asyncio.create_task(bench.scheduler.collect(0, 2))
        for _ in range(20):
            await asyncio.sleep(0)
        seen = bench.scheduler.waiting_for
        task.cancel()
        await asyncio.wait([task])
        assert bench.scheduler.waiting_for == "nothing"
        return str(seen)

    stuck_engine = make_bench(engine=ScriptedEngine(never), max_concurrency=3)
    assert asyncio.run(watch(stuck_engine)) == "a free slot: 1 sample, engine: 3 samples"
    assert asyncio.run(watch(make_bench(rewards=[reward_use(never, "judge")]))) == "reward judge: 4 samples"
    assert asyncio.run(watch(make_bench(generator=never))) == "generator: 4 samples"
