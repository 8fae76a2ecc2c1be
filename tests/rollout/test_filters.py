"""Filters of groups and samples: what they drop, what they take out, and how a broken one is named."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ContractError, PluginError
from slime_core.events import GroupsDone
from slime_core.roles import Drop, FilterContext, GroupFilter, Keep, KeepIfShort, Removal
from slime_core.sample import Group, GroupId, Status
from slime_testing.samples import make_group, make_sample
from slime_train.filters import nonzero_std, nonzero_std_with_fallback, truncated
from tests.rollout.bench import make_bench
from tests.tables import table

NOW = FilterContext(rollout_id=0)


@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_a_group_is_kept_when_its_rewards_deviate(rewards: list[float]) -> None:
    deviates = bool(np.std(rewards, ddof=1) > 1e-6)
    assert isinstance(nonzero_std(make_group(rewards=rewards), NOW), Keep) == deviates
    assert isinstance(nonzero_std_with_fallback(make_group(rewards=rewards), NOW), Keep) == deviates


@table("last, deviates", [(1.5e-6, False), (1.8e-6, True), (1e-5, True)])
def test_the_deviation_is_the_unbiased_one(last: float, deviates: bool) -> None:
    rewards = [0.0, 0.0, last]  # of which the unbiased deviation is last / sqrt(3)
    assert isinstance(nonzero_std(make_group(rewards=rewards), NOW), Keep) == deviates


def test_a_group_without_rewards_is_dropped_as_unscored() -> None:
    group = make_group(rewards=[1.0, 0.0])
    for sample in group.samples:
        sample.reward = None
    assert nonzero_std(group, NOW) == Drop("zero_std_unscored")


@table("rewards, reason", [((1, 1), "zero_std_1.0"), ((0.25,), "zero_std_0.2"), ((0.1,) * 3, "zero_std_0.1")])
def test_the_reason_names_the_reward(rewards: tuple[float, ...], reason: str) -> None:
    assert nonzero_std(make_group(rewards=rewards), NOW) == Drop(reason)
    assert nonzero_std_with_fallback(make_group(rewards=rewards), NOW) == KeepIfShort(reason)


# truncated: what a budget cut off is left out, an execution as one, and nothing twice.


def group_of(*samples: tuple[int | None, Status], draw: int = 0) -> Group:
    """A group of samples by their execution and how they ended."""
    made = []
    for index, (execution, status) in enumerate(samples):
        sample = make_sample(reward=float(index), group_index=draw, index=index)
        sample.rollout_id, sample.status = execution, status
        made.append(sample)
    return Group(GroupId("kit", 0, draw, draw), made)


def test_what_was_cut_off_is_removed_and_nothing_else() -> None:
    done, cut = Status.COMPLETED, Status.TRUNCATED
    groups = [group_of((None, done), (None, cut)), group_of((0, done), (1, done), draw=1), group_of((2, cut), draw=2)]
    assert truncated(groups, NOW) == [
        Removal(groups[0].id, 1, "truncated"),
        Removal(groups[2].id, 0, "truncated"),
    ]


def test_of_an_execution_that_was_cut_off_nothing_is_left() -> None:
    done, cut = Status.COMPLETED, Status.TRUNCATED
    group = group_of((7, done), (8, done), (7, cut), (7, done), (8, done))
    assert [each.position for each in truncated([group], NOW)] == [0, 2, 3]


def test_what_is_removed_already_is_not_counted_again() -> None:
    group = group_of((0, Status.TRUNCATED), (1, Status.TRUNCATED))
    group.samples[0].remove_sample = True
    assert [each.position for each in truncated([group], NOW)] == [1]


# Sample filters: what they take out is not trained on, keeps its reward, and is counted; watchers' groups stay.


def first_of_each(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    return [Removal(group.id, 0, "first") for group in groups]


def those_left(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    """What the filters before it left, but for the last of each group."""
    return [
        Removal(group.id, place, "left")
        for group in groups
        for place, sample in enumerate(group.samples[:-1])
        if not sample.remove_sample
    ]


def test_removed_samples_keep_their_reward_and_are_counted() -> None:
    bench = make_bench(sample_filters=[first_of_each, those_left], n=4)
    result = asyncio.run(bench.scheduler.collect(0, 2))
    assert [[sample.remove_sample for sample in group.samples] for group in result.kept] == [
        [True, True, True, False]
    ] * 2
    assert [group.rewards for group in result.kept] == [[1.0, 0.0, 1.0, 0.0]] * 2
    assert result.metrics["rollout/sample_filter/first"] == 2.0
    assert result.metrics["rollout/sample_filter/left"] == 4.0


def test_what_watchers_were_told_of_stays_as_it_was() -> None:
    bench = make_bench(sample_filters=[first_of_each])
    result = asyncio.run(bench.scheduler.collect(0, 2))
    told = [group for event in bench.events if isinstance(event, GroupsDone) for group in event.kept]
    assert [group.id for group in told] == [group.id for group in result.kept]
    assert not any(sample.remove_sample for group in told for sample in group.samples)
    for before, after in zip(told, result.kept, strict=True):
        assert before.samples[1] is after.samples[1]
        assert before.samples[0].tokens is after.samples[0].tokens


def test_all_kept_groups_of_all_waves_are_shown_at_once() -> None:
    seen: list[list[int]] = []

    def look(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        assert ctx.rollout_id == 3
        seen.append([group.id.draw for group in groups])
        return ()

    keep_even: GroupFilter = lambda group, ctx: Drop("odd") if group.id.draw % 2 else Keep()  # noqa: E731
    asyncio.run(make_bench(sample_filters=[look], group_filter=keep_even).scheduler.collect(3, 3))
    assert seen == [[0, 2, 4]]


@table(
    "removals, error, says",
    [
        (lambda group: [Removal(group.id, 9, "far")], ContractError, "holds position 9; positions run from 0 to 1"),
        (lambda group: [Removal(group.id, 0, "a")] * 2, ContractError, "removes sample 0 of group .* twice"),
        (lambda group: None, ContractError, "expected a list of Removal, got NoneType"),
        (lambda group: group.missing, PluginError, "raised AttributeError"),
    ],
)
def test_a_broken_filter_is_named_and_its_groups_go_back(
    removals: Callable[[Group], Sequence[Removal]], error: type[Exception], says: str
) -> None:
    bench = make_bench(sample_filters=[lambda groups, ctx: removals(groups[0])])
    with pytest.raises(error, match=rf"^sample filter of plugin tests.*{says}"):
        asyncio.run(bench.scheduler.collect(0, 2))
    assert [group.id.draw for group in bench.source.back] == [0, 1]
