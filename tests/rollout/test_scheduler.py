"""The policies sync and async: each group once, the same order, at most so many failures; and evaluation."""

import asyncio
import json
import math
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_core.errors import CheckpointError, RolloutError, WorkerError
from slime_core.events import GroupsDone, SamplesDone
from slime_core.roles import (
    Decision,
    FilterContext,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Keep,
    KeepIfShort,
    RewardContext,
    SamplingParams,
)
from slime_core.rollout import EvalResult, EvalSet, RolloutResult, SyncScheduler, evaluate
from slime_core.rollout.metrics import RolloutStats, pass_at_k
from slime_core.rollout.scoring import Execution, Failure
from slime_core.sample import Group, GroupId, Sample
from slime_core.score import Score, Unscored, Verdict
from slime_train.filters import nonzero_std
from tests.rollout.bench import Bench, ScriptedEngine, Thirds, make_bench, output_of, reward_use
from tests.tables import table

examples = settings(max_examples=40)


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
    bench = make_bench(group_filter=nonzero_std, n=1, max_filter_waves=3)
    with pytest.raises(
        RolloutError, match=r"(?s)rollout 7: 3 waves .* 0 of the 2 groups.*6 x zero_std_1\.0.*max-filter-waves"
    ):
        asyncio.run(bench.scheduler.collect(7, 2))


def test_events_come_once_a_wave_and_hold_everything() -> None:
    bench = make_bench(group_filter=Thirds(), over_sampling_batch_size=3)
    result = asyncio.run(bench.scheduler.collect(2, 2))
    assert [type(event) for event in bench.events] == [SamplesDone, GroupsDone] * 2
    samples = [sample for event in bench.events[::2] for sample in event.samples]
    assert len(samples) == 2 * bench.source.drawn
    assert [group for event in bench.events[1::2] for group in event.kept] == result.kept
    assert {key: reason for event in bench.events[1::2] for key, reason in event.dropped.items()} == result.reasons
    assert {event.rollout_id for event in bench.events} == {2}


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


# The policy async: a rollout is made while the trainer works, once, and is there again after a resume.

AHEAD = partial(SyncScheduler, ahead=True)


def test_what_was_made_ahead_is_handed_over_once() -> None:
    bench = make_bench(make=AHEAD)

    async def go() -> None:
        assert draws((await bench.scheduler.collect(0, 2)).kept) == [0, 1]
        bench.scheduler.look_ahead(1, 2)
        assert bench.scheduler.live() == (0, 0)
        await bench.scheduler.settle()
        assert bench.source.drawn == 4
        assert bench.scheduler.live() == (0, 2)
        assert draws((await bench.scheduler.collect(1, 2)).kept) == [2, 3]
        assert (bench.source.drawn, bench.scheduler.live()) == (4, (0, 0))
        assert draws((await bench.scheduler.collect(2, 2)).kept) == [4, 5]

    asyncio.run(go())


def test_what_the_buffer_lacks_by_then_is_made_in_addition() -> None:
    bench = make_bench(make=AHEAD)

    async def go() -> None:
        bench.scheduler.look_ahead(1, 1)
        await bench.scheduler.settle()
        result = await bench.scheduler.collect(1, 3)
        assert draws(result.kept) == [0, 1, 2]
        assert (result.metrics["rollout/raw_reward"], result.metrics["rollout/reward/r"]) == (0.5, 0.5)
        assert result.metrics["rollout/response_len/mean"] == 2.0
        bench.scheduler.look_ahead(2, 0)
        assert draws((await bench.scheduler.collect(2, 2)).kept) == [3, 4]
        assert bench.scheduler.live() == (0, 0)

    asyncio.run(go())


def test_a_resume_has_what_waited_and_does_not_make_it_again() -> None:
    bench, again = make_bench(make=AHEAD), make_bench(make=AHEAD)

    async def go() -> None:
        assert bench.scheduler.state_dict() == {}
        bench.scheduler.look_ahead(3, 2)
        await bench.scheduler.settle()
        state = json.loads(json.dumps(bench.scheduler.state_dict()))
        again.scheduler.load_state_dict(state)
        assert again.scheduler.live() == (0, 2)
        assert again.scheduler.state_dict() == state
        found, first = await again.scheduler.collect(3, 2), await bench.scheduler.collect(3, 2)
        assert [group.to_dict() for group in found.kept] == [group.to_dict() for group in first.kept]
        assert dict(found.metrics) == dict(first.metrics)
        assert (again.source.drawn, bench.source.drawn) == (0, 2)

    asyncio.run(go())


def test_nothing_waits_after_a_resume_from_nothing() -> None:
    bench = make_bench(make=AHEAD)
    bench.scheduler.load_state_dict({})
    assert bench.scheduler.live() == (0, 0)
    with pytest.raises(CheckpointError, match=r"of another rollout_policy \(in_flight, kept\): continue"):
        bench.scheduler.load_state_dict({"in_flight": [], "kept": []})


def test_a_rollout_under_way_ends_with_who_waits_for_it_and_with_the_run() -> None:
    """Its groups go back, to be run again."""
    asked = asyncio.Event()

    async def never(request: GenerateRequest) -> GenerateOutput:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench = make_bench(make=AHEAD, engine=ScriptedEngine(never))

    async def go() -> None:
        await bench.scheduler.close()
        bench.scheduler.look_ahead(0, 2)
        settling = asyncio.create_task(bench.scheduler.settle())
        await asked.wait()
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
        assert (bench.engine.running, bench.scheduler.live()) == (0, (0, 0))
        assert [group.id.draw for group in bench.source.back] == [0, 1]
        asked.clear()
        bench.scheduler.look_ahead(0, 2)
        await asked.wait()
        await bench.scheduler.close()
        assert (bench.engine.running, len(asyncio.all_tasks())) == (0, 1)

    asyncio.run(go())


# A rollout that cannot stay within its share of failures ends at once, and no other does.


async def first_fails_others_hang(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.index == 0:
        raise ZeroDivisionError("division by zero")
    await asyncio.Event().wait()
    raise AssertionError("not reached")


@table("wave", [2, 8])
def test_a_wave_that_is_lost_does_not_wait_for_its_hanging_samples(wave: int) -> None:
    bench = make_bench(rewards=[reward_use(first_fails_others_hang, "judge", timeout_s=600.0)], max_error_rate=0.05)
    with pytest.raises(RolloutError, match=r"(?s)^rollout 0: \d of \d+ samples failed; .* had not ended\..*judge_Zero"):
        asyncio.run(asyncio.wait_for(bench.scheduler.collect(0, wave), 60))
    assert len(bench.source.back) == wave


@given(
    outcomes=st.lists(st.booleans(), min_size=1, max_size=40),
    limit=st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]),
    made=st.integers(0, 30),
)
def test_it_ends_early_exactly_when_the_whole_would_be_refused(outcomes: list[bool], limit: float, made: int) -> None:
    budget = RolloutStats("rollout 0").errors
    for _ in range(made):
        budget.add(None)
    budget.expect(len(outcomes), limit)
    lost = [sum(outcomes[: place + 1]) > limit * (made + len(outcomes)) for place in range(len(outcomes))]
    for is_last, is_lost, fails in zip([*[False] * (len(outcomes) - 1), True], lost, outcomes, strict=True):
        ended = Failure("bad") if fails else None
        if is_lost and not is_last:
            with pytest.raises(RolloutError, match="Stopped early"):
                budget.add(ended)
            return
        budget.add(ended)


def test_an_execution_of_many_samples_counts_once() -> None:
    samples = [Sample(prompt="1", index=0, group_index=0, rollout_id=0) for _ in range(10)]
    failed = Execution(samples)
    for each in failed.scored[1:]:
        each.failure = Failure("bad")
    stats = RolloutStats("rollout 7")
    for each in (failed, Execution(samples[:1])):
        stats.errors.add(each.failure)
    assert stats.metrics()["rollout/errors/bad"] == 1.0
    with pytest.raises(RolloutError, match="1 of 2 samples failed"):
        stats.errors.check(0.4)


# evaluate: several data sets at once, the same answers at any time, failures never scored 0.


def eval_set(name: str, prompts: int, n: int = 1) -> EvalSet:
    groups = [
        Group(
            GroupId(f"eval:{name}", 0, row, row),
            [Sample(group_index=row, index=index, rollout_id=row * n + index, prompt=str(row)) for index in range(n)],
        )
        for row in range(prompts)
    ]
    return EvalSet(name, groups, SamplingParams(4, temperature=0.0))


def run(bench: Bench, *sets: EvalSet) -> EvalResult:
    return asyncio.run(evaluate(bench.scheduler, sets, rollout_id=9))


def test_each_data_set_has_its_metrics() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        return output_of(request, FinishReason.LENGTH if request.prompt[0] == 1000 else FinishReason.STOP)

    async def first_half(sample: Sample, ctx: RewardContext) -> Verdict:
        assert (ctx.evaluation, ctx.rollout_id) == (True, 9)
        return Score(float(sample.prompt in ("0", "1")))

    bench = make_bench(engine=ScriptedEngine(answer), rewards=[reward_use(first_half)])
    result = run(bench, eval_set("small", 2), eval_set("large", 4))
    assert result.metrics["eval/small"] == 1.0
    assert result.metrics["eval/large"] == 0.5
    assert result.metrics["eval/small-truncated_ratio"] == 0.5
    assert result.metrics["eval/large-truncated_ratio"] == 0.25
    assert result.metrics["eval/large/response_len/mean"] == 2.0
    assert not any("pass@" in name for name in result.metrics)
    assert {name: len(samples) for name, samples in result.samples.items()} == {"small": 2, "large": 4}
    assert {request.sampling.temperature for request in bench.engine.requests} == {0.0}


def test_training_state_is_not_touched_and_answers_repeat() -> None:
    alone, between = make_bench(), make_bench()
    tests = eval_set("tests", 5, n=2)
    first = run(between, tests)
    trained = asyncio.run(between.scheduler.collect(0, 3))
    again = run(between, tests)
    assert [sample.to_dict() for sample in again.samples["tests"]] == [s.to_dict() for s in first.samples["tests"]]
    assert again.metrics == first.metrics
    expected = asyncio.run(alone.scheduler.collect(0, 3))
    assert [group.to_dict() for group in trained.kept] == [group.to_dict() for group in expected.kept]
    assert between.source.drawn == 3


def test_evaluation_shares_the_slots() -> None:
    bench = make_bench(engine=ScriptedEngine(jitter=3), max_concurrency=4)
    run(bench, eval_set("a", 8), eval_set("b", 8))
    assert bench.engine.most_at_once == 4


def test_failed_samples_are_counted_and_left_out_of_the_mean() -> None:
    async def sometimes(sample: Sample, ctx: RewardContext) -> Verdict:
        return Unscored("?") if sample.prompt == "2" else Score(1.0)

    result = run(make_bench(rewards=[reward_use(sometimes)]), eval_set("tests", 4))
    assert (result.metrics["eval/tests"], result.metrics["eval/tests/failed"]) == (1.0, 1.0)


def test_too_many_failures_stop_it_by_name() -> None:
    async def never(sample: Sample, ctx: RewardContext) -> Verdict:
        return Unscored("no judge")

    bench = make_bench(rewards=[reward_use(never)], max_error_rate=0.5)
    with pytest.raises(RolloutError, match="evaluation of tests: 2 of 3 samples failed"):
        run(bench, eval_set("tests", 3))


def test_one_event_a_data_set() -> None:
    bench = make_bench()
    result = run(bench, eval_set("a", 2), eval_set("b", 1))
    assert bench.events == [SamplesDone(9, result.samples[name], evaluation=True) for name in ("a", "b")]


@given(
    rewards=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=6), min_size=1, max_size=4),
    k=st.integers(1, 6),
)
def test_pass_at_k_is_the_share_of_k_subsets_that_hold_a_pass(rewards: list[list[float]], k: int) -> None:
    usable = [each for each in rewards if len(each) >= k]
    if not usable:
        return
    shares = [sum(1.0 in chosen for chosen in combinations(each, k)) / math.comb(len(each), k) for each in usable]
    assert pass_at_k(rewards, k) == pytest.approx(sum(shares) / len(shares))
