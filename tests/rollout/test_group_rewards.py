"""Group rewards: asked once all samples of a group are finished, summed with the others, and failing as one."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from slime_core.errors import RolloutError
from slime_core.processes import OnLoop
from slime_core.roles import GenerateContext, GroupReward, RewardContext, RewardGrain
from slime_core.rollout import Environment, RewardOnError, SingleTurn, UsedReward
from slime_core.sample import Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_core.seeds import derive_seed
from slime_core.stats import CallStats
from tests.rollout.bench import Bench, make_bench, reward_use
from tests.tables import table


def group_use(
    reward: GroupReward, name: str = "g", weight: float = 1.0, timeout_s: float = 5.0
) -> UsedReward[GroupReward]:
    calls = CallStats("group_reward", name, "tests")
    return UsedReward(name, "tests", OnLoop(reward, timeout_s=timeout_s, max_concurrency=None, calls=calls), weight)


async def by_place(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(float(place), {"size": float(len(samples))}) for place in range(len(samples))]


async def hang(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    await asyncio.Event().wait()
    raise AssertionError("not reached")


async def crash(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    raise ZeroDivisionError("division by zero")


async def too_few(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(1.0)]


async def partly(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Unscored("a tie"), *[Score(1.0)] * (len(samples) - 2), NotApplicable()]


async def constant(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(10.0)


class FanOut:
    """Two samples of each rollout."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        [made] = await SingleTurn()(sample, ctx)
        return [made, replace(made)]


def collect(bench: Bench, want: int = 1) -> tuple[list[list[float]], dict[str, float]]:
    result = asyncio.run(bench.scheduler.collect(0, want))
    return [group.rewards for group in result.kept], dict(result.metrics)


def test_it_is_summed_by_weight_with_the_rewards() -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[group_use(by_place, weight=0.5)], n=3)
    rewards, metrics = collect(bench, want=2)
    assert rewards == [[10.0, 10.5, 11.0]] * 2
    assert metrics["rollout/reward/r"] == 10.0
    assert metrics["rollout/group_reward/g"] == 1.0
    assert metrics["rollout/group_reward/g/size"] == 3.0


@table("retryable", [True, False])
def test_one_retryable_answer_asks_once_more_about_the_whole_group(retryable: bool) -> None:
    asked: list[int] = []

    async def busy_at_first(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        asked.append(len(samples))
        failed = Unscored("busy", retryable=retryable)
        return [failed if len(asked) == 1 else Score(2.0), *[Score(2.0)] * (len(samples) - 1)]

    rewards, _ = collect(make_bench(rewards=[], group_rewards=[group_use(busy_at_first)], n=3, max_error_rate=1.0))
    assert asked == ([3, 3] if retryable else [3])
    assert rewards == [[2.0] * (3 if retryable else 2)]


def test_it_is_enough_alone_and_weight_zero_only_measures() -> None:
    alone = make_bench(rewards=[], group_rewards=[group_use(by_place), group_use(crash, "measure", 0.0)], n=2)
    rewards, metrics = collect(alone)
    assert rewards == [[0.0, 1.0]]
    assert "rollout/group_reward/measure" not in metrics
    assert not any(name.startswith("rollout/errors") for name in metrics)


@table(
    "grain, shown, scored",
    [
        (RewardGrain.EXECUTION, [0, 1], [0.0, 0.0, 1.0, 1.0]),
        (RewardGrain.SAMPLE, [0, 0, 1, 1], [0.0, 1.0, 2.0, 3.0]),
    ],
)
def test_it_sees_one_sample_of_each_execution_or_all(grain: RewardGrain, shown: list[int], scored: list[float]) -> None:
    seen: list[list[int | None]] = []

    async def look(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        assert all(sample.status is Status.COMPLETED for sample in samples)
        seen.append([sample.rollout_id for sample in samples])
        return [Score(float(place)) for place in range(len(samples))]

    use = replace(group_use(look), grain=grain)
    rewards, metrics = collect(make_bench(rewards=[], group_rewards=[use], generator=FanOut(), n=2))
    assert seen == [shown]
    assert rewards == [scored]
    assert metrics["rollout/group_reward/g"] == sum(range(len(shown))) / len(shown)


def test_it_is_told_what_it_is_asked_for() -> None:
    told = []

    async def look(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        told.append(ctx)
        return [Score(0.0)] * len(samples)

    asyncio.run(make_bench(rewards=[], group_rewards=[group_use(look)]).scheduler.collect(3, 1))
    assert told == [RewardContext(3, False, derive_seed(5, "numbers", 0, 0, 0, "group_reward"))]


@table(
    "reward, reason",
    [
        (group_use(hang, timeout_s=0.01), "g_timeout"),
        (group_use(crash), "g_ZeroDivisionError"),
        (group_use(too_few), "g_contract"),
    ],
)
def test_its_failure_is_every_samples(reward: UsedReward[GroupReward], reason: str) -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[reward], reward_on_error=RewardOnError.MASK)

    async def run() -> None:
        with pytest.raises(RolloutError, match="2 waves"):
            await bench.scheduler.collect(0, 1)

    bench.scheduler.policy = replace(bench.scheduler.policy, max_filter_waves=2)
    asyncio.run(run())
    dropped = bench.events[-1]
    assert set(dropped.dropped.values()) == {"unscored"}
    [*samples] = bench.events[-2].samples
    assert [(sample.reward, sample.status, sample.remove_sample) for sample in samples] == [
        (None, Status.FAILED, True)
    ] * 2


def test_one_verdict_of_many_may_fail() -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[group_use(partly)], n=4)
    rewards, metrics = collect(bench)
    assert rewards == [[11.0, 11.0, 10.0]]
    assert metrics["rollout/errors/g_a_tie"] == 1.0
    assert metrics["rollout/group_reward/g/not_applicable"] == 1.0


def test_samples_that_failed_are_not_shown_to_it() -> None:
    async def first_fails(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        if sample.index == 0:
            raise OSError("no tool")
        return await SingleTurn()(sample, ctx)

    rewards, metrics = collect(make_bench(rewards=[], group_rewards=[group_use(by_place)], generator=first_fails, n=3))
    assert rewards == [[0.0, 1.0]]
    assert metrics["rollout/errors/generator_OSError"] == 1.0


def test_a_generators_own_score_is_weighed_beside_it() -> None:
    async def scores_the_first(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        [made] = await SingleTurn()(sample, ctx)
        made.reward = 7.0 if sample.index == 0 else None
        return [made]

    own = UsedReward("environment", "tests", Environment(), 0.5, RewardGrain.SAMPLE, reads_own=True)
    bench = make_bench(rewards=[own], group_rewards=[group_use(by_place)], generator=scores_the_first, n=3)
    rewards, metrics = collect(bench)
    assert rewards == [[3.5, 1.0, 2.0]]
    assert (metrics["rollout/reward/environment"], metrics["rollout/reward/environment/not_applicable"]) == (7.0, 2.0)
