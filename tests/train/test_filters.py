"""Filters for dynamic sampling: what they drop and what they leave out of training."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import Drop, FilterContext, Keep, KeepIfShort, Removal
from slime_core.sample import Group, GroupId, Status
from slime_testing.samples import make_group, make_sample
from slime_train.filters import nonzero_std, nonzero_std_with_fallback, truncated
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
