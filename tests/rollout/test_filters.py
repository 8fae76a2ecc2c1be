"""nonzero_std: slime's rule, checked against NumPy's unbiased deviation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import Drop, FilterContext, Keep, KeepIfShort
from slime_core.rollout import NonzeroStd, NonzeroStdWithFallback
from slime_testing.samples import make_group
from tests.tables import table

NOW = FilterContext(rollout_id=0)


@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_a_group_is_kept_when_its_rewards_deviate(rewards: list[float]) -> None:
    deviates = bool(np.std(rewards, ddof=1) > 1e-6)
    assert isinstance(NonzeroStd()(make_group(rewards=rewards), NOW), Keep) == deviates
    assert isinstance(NonzeroStdWithFallback()(make_group(rewards=rewards), NOW), Keep) == deviates


@table("last, deviates", [(1.5e-6, False), (1.8e-6, True), (1e-5, True)])
def test_the_deviation_is_the_unbiased_one(last: float, deviates: bool) -> None:
    rewards = [0.0, 0.0, last]  # of which the unbiased deviation is last / sqrt(3)
    assert isinstance(NonzeroStd()(make_group(rewards=rewards), NOW), Keep) == deviates


def test_a_group_without_rewards_is_dropped_as_unscored() -> None:
    group = make_group(rewards=[1.0, 0.0])
    for sample in group.samples:
        sample.reward = None
    assert NonzeroStd()(group, NOW) == Drop("zero_std_unscored")


@table("rewards, reason", [((1, 1), "zero_std_1.0"), ((0.25,), "zero_std_0.2"), ((0.1,) * 3, "zero_std_0.1")])
def test_the_reason_names_the_reward(rewards: tuple[float, ...], reason: str) -> None:
    assert NonzeroStd()(make_group(rewards=rewards), NOW) == Drop(reason)
    assert NonzeroStdWithFallback()(make_group(rewards=rewards), NOW) == KeepIfShort(reason)
