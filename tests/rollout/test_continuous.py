"""ContinuousScheduler: generation goes on across weight updates, and no group is lost or too old."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_core.errors import CheckpointError, RolloutError
from slime_core.events import GroupsDone, SamplesDone
from slime_core.roles import (
    Decision,
    Drop,
    FilterContext,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    KeepIfShort,
    RewardContext,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import ContinuousScheduler, Parts, RolloutResult, Scheduler, Staleness, SyncScheduler
from slime_core.sample import Group, Json, Sample
from slime_core.score import Score, Verdict
from tests.rollout.bench import Bench, Idle, Thirds, make_bench, reward_use
from tests.tables import table

BATCH = 4
AHEAD = partial(SyncScheduler, ahead=True)
LONG = SamplingParams(60)
examples = settings(max_examples=60)


class DecodingEngine(Idle):
    """One token a tick, lengths of a heavy tail that are a function of the seed; the version is that of the start."""

    def __init__(self, *, whole_budget: bool = False) -> None:
        self.version = 0
        self.running = 0
        self.aborts = 0
        self._whole_budget = whole_budget

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self.version = version

    async def abort(self) -> None:
        self.aborts += 1
        for _ in range(5):  # an answer takes its ticks
            await asyncio.sleep(0)

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        version, aborts = self.version, self.aborts
        length = request.sampling.max_new_tokens
        if not self._whole_budget:
            length = min(1 + int(4 / (1e-3 + (request.seed % 997) / 997)), length)
        self.running += 1
        made = 0
        try:
            while made < length and self.aborts == aborts:
                await asyncio.sleep(0)
                made += 1
        finally:
            self.running -= 1
        finish = FinishReason.STOP if made == length else FinishReason.ABORT
        return GenerateOutput([7] * made, [-0.5] * made, finish, version)


@dataclass
class Trained:
    """What a training loop over a scheduler saw."""

    steps: list[Sequence[Group]] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)

    @property
    def draws(self) -> list[int]:
        return [group.id.draw for step in self.steps for group in step]


async def train(bench: Bench, first: int, steps: int, ticks: int = 5) -> Trained:
    """Steps of a loop: hand over, train for some ticks, publish."""
    seen = Trained()
    scheduler: Scheduler = bench.scheduler
    await publish(bench, first)
    for rollout_id in range(first, first + steps):
        result = await scheduler.collect(rollout_id, BATCH)
        seen.steps.append(result.kept)
        seen.ages += [rollout_id - (group.oldest_weight_version or 0) for group in result.kept]
        seen.metrics.append(dict(result.metrics))
        scheduler.look_ahead(rollout_id + 1, BATCH)
        for _ in range(ticks):
            await asyncio.sleep(0)
        await publish(bench, rollout_id + 1)
    return seen


async def publish(bench: Bench, version: int) -> None:
    await bench.scheduler.settle()
    bench.engine.version = version
    bench.scheduler.resume_with(version)


def stream(steps: int, over_sampling: int | None = None) -> Callable[[Parts], ContinuousScheduler]:
    return lambda parts: ContinuousScheduler(parts, Staleness(BATCH, steps, parts.policy.max_staleness, over_sampling))


def run(bench: Bench, steps: int, ticks: int = 5) -> Trained:
    async def whole() -> Trained:
        try:
            return await train(bench, 0, steps, ticks)
        finally:
            await bench.scheduler.close()
            assert len(asyncio.all_tasks()) == 1, "a task was left"

    return asyncio.run(whole())


@examples
@given(
    staleness=st.integers(0, 3),
    partial=st.booleans(),
    over=st.sampled_from([None, None, BATCH + 1, 3 * BATCH]),
    ticks=st.integers(0, 60),
    seed=st.integers(0, 999),
    slots=st.integers(1, 40),
    filtered=st.booleans(),
)
def test_no_group_is_lost_repeated_or_older_than_allowed(
    staleness: int, partial: bool, over: int | None, ticks: int, seed: int, slots: int, filtered: bool
) -> None:
    bench = make_bench(
        engine=DecodingEngine(),
        make=stream(6, over),
        group_filter=Thirds() if filtered else None,
        seed=seed,
        max_concurrency=slots,
        max_staleness=staleness,
        partial_rollout=partial or over is not None,
        max_filter_waves=100,
        sampling=LONG,
    )
    seen = run(bench, 6, ticks)
    assert [len(step) for step in seen.steps] == [BATCH] * 6
    assert len(set(seen.draws)) == len(seen.draws)
    assert max(seen.ages) <= staleness
    done = [event for event in bench.events if isinstance(event, GroupsDone)]
    dropped = {group_id.draw for event in done for group_id in event.dropped}
    assert sorted(group.id.draw for event in done for group in event.kept) == sorted(seen.draws)
    emitted = sum(len(event.samples) for event in bench.events if isinstance(event, SamplesDone))
    assert emitted == 2 * bench.source.drawn
    assert sorted([*seen.draws, *dropped]) == list(range(bench.source.drawn)), "all that was drawn was used"


def test_generation_goes_on_while_the_trainer_works() -> None:
    bench = make_bench(engine=DecodingEngine(), make=stream(5), max_staleness=1)
    seen = run(bench, 5, ticks=200)
    assert seen.ages[: 2 * BATCH] == [0] * BATCH + [1] * BATCH
    assert set(seen.ages[BATCH:]) == {1}


def test_a_sample_goes_on_with_the_weights_of_the_next_step() -> None:
    engine = DecodingEngine(whole_budget=True)
    bench = make_bench(engine=engine, make=stream(6), max_staleness=2, partial_rollout=True, sampling=LONG)
    seen = run(bench, 6, ticks=3)
    samples = [sample for step in seen.steps for group in step for sample in group.samples]
    assert any(len(sample.weight_versions) > 1 for sample in samples), "some were interrupted"
    assert {sample.response_length for sample in samples} == {60}, "the budget of the whole response, in parts"
    assert {sum(sample.loss_mask) for sample in samples} == {60}


def test_between_steps_partial_rollouts_stand_still() -> None:
    bench = make_bench(engine=DecodingEngine(), make=stream(6, over_sampling=7), partial_rollout=True, sampling=LONG)

    async def watched() -> None:
        await publish(bench, 0)
        await bench.scheduler.collect(0, BATCH)
        assert bench.engine.running == 0
        in_flight, finished = bench.scheduler.live()
        assert in_flight + finished == 7 - BATCH
        await publish(bench, 1)
        result = await bench.scheduler.collect(1, BATCH)
        assert {group.oldest_weight_version for group in result.kept} >= {0}
        await bench.scheduler.close()

    asyncio.run(watched())


def test_a_step_that_comes_late_draws_although_nothing_is_in_flight() -> None:
    make = stream(3, over_sampling=BATCH)
    bench = make_bench(engine=DecodingEngine(), make=make, partial_rollout=True, sampling=LONG)

    async def watched() -> None:
        for rollout_id in range(3):
            await publish(bench, rollout_id)
            for _ in range(9):  # an evaluation, run hooks
                await asyncio.sleep(0)
            assert bench.scheduler.live() == (0, 0)
            result = await asyncio.wait_for(bench.scheduler.collect(rollout_id, BATCH), 60)
            assert len(result.kept) == BATCH
        await bench.scheduler.close()

    asyncio.run(watched())


@examples
@given(cut=st.integers(0, 80), seed=st.integers(0, 99), partial=st.booleans())
def test_a_saved_state_continues_with_all_that_was_alive(cut: int, seed: int, partial: bool) -> None:
    options = {"sampling": LONG, "seed": seed, "max_staleness": 2, "partial_rollout": partial}

    async def first() -> tuple[Trained, str, list[int]]:
        bench = make_bench(engine=DecodingEngine(), make=stream(8), **options)
        seen = await train(bench, 0, 3)
        for _ in range(cut):
            await asyncio.sleep(0)
        async with bench.scheduler.pause_draws():
            state = json.dumps(bench.scheduler.state_dict())
            in_flight, finished = bench.scheduler.live()
        await bench.scheduler.close()
        assert len(json.loads(state)["in_flight"]) == in_flight
        assert len(json.loads(state)["ready"]) == finished
        return seen, state, [bench.source.drawn]

    before, state, (drawn,) = asyncio.run(first())

    async def second() -> Trained:
        bench = make_bench(engine=DecodingEngine(), make=stream(8), **options)
        bench.source.drawn = drawn
        bench.scheduler.load_state_dict(json.loads(state))
        seen = await train(bench, 3, 5)
        await bench.scheduler.close()
        assert bench.source.drawn == 8 * BATCH, "nothing is generated for steps that the run does not have"
        return seen

    after = asyncio.run(second())
    assert sorted(before.draws + after.draws) == list(range(8 * BATCH))


@table("over, waiting", list(product([None, 3 * BATCH], [BATCH + 1, 2 * BATCH, 3 * BATCH])))
def test_groups_that_waited_for_a_resume_are_handed_over_before_they_are_too_old(
    waiting: int, over: int | None
) -> None:
    """More than a step takes, as after a smaller rollout_batch_size was accepted."""

    async def first() -> dict[str, Json]:
        bench = make_bench(engine=DecodingEngine(), make=stream(8, 3 * BATCH), max_staleness=2, partial_rollout=True)
        await publish(bench, 0)
        scheduler: Scheduler = bench.scheduler
        result = await scheduler.collect(0, waiting)
        state = scheduler.state_dict()
        await scheduler.close()
        ready = [[0, group.id.draw, group.to_dict()] for group in result.kept]
        return {**state, "collected": 2, "in_flight": [], "ready": ready}

    async def second(state: dict[str, Json]) -> Trained:
        bench = make_bench(
            engine=DecodingEngine(), make=stream(8, over), max_staleness=2, partial_rollout=over is not None
        )
        bench.source.drawn = 100
        bench.scheduler.load_state_dict(json.loads(json.dumps(state)))
        seen = await train(bench, 2, 4)
        await bench.scheduler.close()
        return seen

    seen = asyncio.run(second(asyncio.run(first())))
    assert max(seen.ages) <= 2
    assert [draw for draw in seen.draws if draw < 100] == list(range(waiting))


def test_second_choices_are_kept_while_the_trainer_waits() -> None:
    class Never:
        def __call__(self, group: Group, ctx: FilterContext) -> Decision:
            return KeepIfShort("dull")

    bench = make_bench(engine=DecodingEngine(), make=stream(3), group_filter=Never(), max_staleness=0)
    assert len(run(bench, 3).draws) == 3 * BATCH


def test_it_gives_up_once_as_many_were_dropped_as_the_waves_hold() -> None:
    class Nothing:
        def __call__(self, group: Group, ctx: FilterContext) -> Decision:
            return Drop("dull")

    bench = make_bench(
        engine=DecodingEngine(), make=stream(3), group_filter=Nothing(), max_filter_waves=3, max_concurrency=2
    )  # a group at a time
    with pytest.raises(RolloutError, match=rf"dropped were:\n  {3 * BATCH} x dull"):
        run(bench, 3)


def test_a_step_tells_which_groups_it_dropped_and_why() -> None:
    async def first() -> RolloutResult:
        bench = make_bench(engine=DecodingEngine(), make=stream(2), group_filter=Thirds(), max_filter_waves=100)
        await publish(bench, 0)
        result = await bench.scheduler.collect(0, BATCH)
        await bench.scheduler.close()
        return result  # type: ignore[no-any-return]

    result = asyncio.run(first())
    assert result.dropped
    assert all(group.id.draw % 3 for group in result.dropped)
    assert result.reasons == {group.id: "rest" for group in result.dropped}
    assert result.failed == []


def test_a_step_that_is_lost_does_not_wait_for_its_hanging_groups() -> None:
    async def only_the_first_ends(sample: Sample, ctx: RewardContext) -> Verdict:
        if sample.group_index == 0:
            raise ZeroDivisionError("division by zero")
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    rewards = [reward_use(only_the_first_ends, "judge", timeout_s=600.0)]
    bench = make_bench(engine=DecodingEngine(), rewards=rewards, make=stream(3), max_error_rate=0.05)
    with pytest.raises(RolloutError, match=r"2 of 8 samples failed; .* Stopped early; 6 had not ended\."):
        run(bench, 3)


def test_what_failed_while_the_trainer_worked_ends_the_next_step() -> None:
    async def fails_later(sample: Sample, ctx: RewardContext) -> Verdict:
        if ctx.rollout_id and sample.index == 0:
            raise ZeroDivisionError("division by zero")
        return Score(1.0)

    bench = make_bench(
        engine=DecodingEngine(), rewards=[reward_use(fails_later)], make=stream(4), n=3, max_error_rate=0.05
    )
    with pytest.raises(RolloutError, match=r"^rollout 2: \d of \d+ samples failed; --max-error-rate 0.05 allows"):
        run(bench, 4, ticks=2000)


def test_an_interrupted_group_is_run_again() -> None:
    engine = DecodingEngine()
    whole, seeds = engine.generate, set[int]()

    async def once(request: GenerateRequest) -> GenerateOutput:
        if request.seed not in seeds and request.seed % 3 == 0:
            seeds.add(request.seed)
            return GenerateOutput([7], [-0.5], FinishReason.ABORT, engine.version)
        return await whole(request)

    engine.generate = once  # type: ignore[method-assign]
    bench = make_bench(engine=engine, make=stream(3))
    assert sorted(run(bench, 3).draws) == list(range(3 * BATCH))
    assert seeds


@table("ticks, age", [(0, 1), (300, 1)])
def test_one_ahead_generates_the_next_rollout_with_one_version_less(ticks: int, age: int) -> None:
    seen = run(make_bench(engine=DecodingEngine(), make=AHEAD), 4, ticks)
    assert seen.ages == [0] * BATCH + [age] * 3 * BATCH
    assert seen.draws == list(range(4 * BATCH))


@table("make", [SyncScheduler, AHEAD, stream(3)])
def test_work_that_another_policy_left_is_refused(make: Callable[[Parts], Scheduler]) -> None:
    with pytest.raises(CheckpointError, match="unfinished work of another rollout_policy"):
        make_bench(make=make).scheduler.load_state_dict({"strange": 1})
