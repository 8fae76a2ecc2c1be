"""What one execution fans out into is one success or one failure, scored once or sample by sample."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import RolloutError
from slime_core.roles import GenerateContext, RewardContext, RewardGrain, SamplingParams
from slime_core.rollout import EvalSet, RewardOnError, SingleTurn, evaluate, execution_rewards, executions, main_of
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.score import Score, Verdict
from tests.rollout.bench import make_bench, reward_use
from tests.rollout.test_samples import own_use
from tests.tables import table


class FansOut(SingleTurn):
    """Three samples of each execution; the marked one, if any, is the main one; some may fail or be scored."""

    def __init__(
        self, marked: int | None = None, failed: tuple[int, ...] = (), own: dict[int, float] | None = None
    ) -> None:
        super().__init__()
        self.marked, self.failed, self.own = marked, failed, own or {}

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        [made] = await super().__call__(sample, ctx)
        return [self._copy(made, place) for place in range(3)]

    def _copy(self, made: Sample, place: int) -> Sample:
        failed = place in self.failed and made.index == 0
        return replace(
            made,
            metadata={"place": place} | ({"main": True} if place == self.marked else {}),
            status=Status.FAILED if failed else made.status,
            failure_reason="tool broke" if failed else None,
            reward=self.own.get(place),
        )


class Asked:
    """Scores the place of a sample, and remembers which it was asked about."""

    def __init__(self) -> None:
        self.places: list[object] = []

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.places.append(sample.metadata["place"])
        return Score(float(sample.metadata["place"]))  # type: ignore[arg-type]


@table("marked, asked", [(None, 2), (0, 0), (1, 1)])
def test_the_main_sample_is_asked_about_and_all_have_the_answer(marked: int | None, asked: int) -> None:
    reward = Asked()
    bench = make_bench(generator=FansOut(marked), rewards=[reward_use(reward)], n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert reward.places == [asked, asked]
    assert result.kept[0].rewards == [float(asked)] * 6
    assert result.metrics["rollout/raw_reward"] == result.metrics["rollout/reward/r"] == asked


def test_a_reward_may_ask_for_every_sample() -> None:
    reward = Asked()
    each = replace(reward_use(reward), grain=RewardGrain.SAMPLE)
    result = asyncio.run(make_bench(generator=FansOut(1), rewards=[each], n=1).scheduler.collect(0, 1))
    assert reward.places == [0, 1, 2]
    assert result.kept[0].rewards == [0.0, 1.0, 2.0]
    assert result.metrics["rollout/raw_reward"] == 1.0, "the main sample's"
    assert result.metrics["rollout/reward/r"] == 1.0, "the mean of what was said"


def test_a_sibling_that_failed_costs_its_own_tokens_and_one_error() -> None:
    bench = make_bench(generator=FansOut(failed=(0, 1)), rewards=[reward_use(Asked())], n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert [sample.metadata["place"] for sample in result.kept[0].samples] == [2, 0, 1, 2]
    assert result.metrics["rollout/errors/tool_broke"] == 1.0


def test_a_main_sample_that_failed_costs_its_siblings() -> None:
    reward = Asked()
    bench = make_bench(
        generator=FansOut(failed=(2,)), rewards=[reward_use(reward)], n=3, reward_on_error=RewardOnError.MASK
    )
    result = asyncio.run(bench.scheduler.collect(0, 1))
    lost = result.kept[0].samples[:3]
    assert [(each.status, each.failure_reason, each.reward) for each in lost] == [
        (Status.FAILED, "tool_broke", None)
    ] * 3
    assert all(each.remove_sample and each.response_length == 2 for each in lost), "and they keep their tokens"
    assert reward.places == [2, 2]
    assert result.metrics["rollout/errors/tool_broke"] == 1.0


def test_a_group_is_kept_for_its_executions_not_for_their_samples() -> None:
    bench = make_bench(generator=FansOut(failed=(2,)), rewards=[reward_use(Asked())], n=2, max_filter_waves=1)
    with pytest.raises(RolloutError, match="1 x unscored"):
        asyncio.run(bench.scheduler.collect(0, 1))


@table("own, rewards", [({2: 0.5}, [0.5, 0.5, 0.5]), ({0: 0.25, 2: 0.5}, [0.25, 0.5, 0.5])])
def test_siblings_without_a_score_of_their_own_have_the_main_ones(own: dict[int, float], rewards: list[float]) -> None:
    bench = make_bench(generator=FansOut(own=own), rewards=[own_use(1.0)], n=1)
    assert asyncio.run(bench.scheduler.collect(0, 1)).kept[0].rewards == rewards


def test_an_evaluation_counts_executions() -> None:
    async def first_passes(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(float(sample.index == 0))

    groups = [
        Group(GroupId("eval:x", 0, row, row), [Sample(None, index, 2 * row + index, str(row)) for index in range(2)])
        for row in range(2)
    ]
    for group in groups:
        for sample in group.samples:
            sample.group_index = group.id.row
    bench = make_bench(generator=FansOut(), rewards=[reward_use(first_passes)])
    metrics = asyncio.run(evaluate(bench.scheduler, [EvalSet("x", groups, SamplingParams(4))], rollout_id=0)).metrics
    assert metrics["eval/x"] == metrics["eval/x-pass@1"] == 0.5
    assert metrics["eval/x-pass@2"] == 1.0
    assert not any("pass@4" in name for name in metrics)


@given(numbers=st.lists(st.none() | st.integers(0, 3), max_size=12), marks=st.sets(st.integers(0, 11)))
def test_every_sample_is_in_one_execution_and_in_order(numbers: list[int | None], marks: set[int]) -> None:
    samples = [
        Sample(index=place, rollout_id=number, reward=float(place), metadata={"main": True} if place in marks else {})
        for place, number in enumerate(numbers)
    ]
    found = executions(samples)
    assert sorted(sample.index or 0 for siblings in found for sample in siblings) == list(range(len(samples)))
    for siblings in found:
        assert [sample.index for sample in siblings] == sorted(sample.index or 0 for sample in siblings)
        assert len(siblings) == 1 or len({sample.rollout_id for sample in siblings}) == 1
        marked = [sample for sample in siblings if sample.metadata]
        assert main_of(siblings) is (marked or siblings[-1:])[0]
    assert execution_rewards(samples) == [float(main_of(siblings).index or 0) for siblings in found]
