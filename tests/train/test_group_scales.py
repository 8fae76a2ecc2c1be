"""MaxRL and GPG against loops in float64; and what MaxRL's gradient is in expectation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from slime_core.errors import ContractError
from slime_core.roles import Advantage
from slime_train.estimators.gpg import Gpg
from slime_train.estimators.max_rl import MaxRl
from slime_train.whitened import EstimatorSettings
from tests.tables import table
from tests.train.test_estimators import SAMPLES, Scored, batch_of, centred, is_flat, rollouts_of, spread, whitened

PAID = SAMPLES.map(lambda samples: [replace(each, reward=abs(each.reward)) for each in samples])


def max_rl(samples: Sequence[Scored]) -> list[float]:
    found = []
    for sample in samples:
        means = rollouts_of(samples, sample.group).values()
        mean = math.fsum(means) / len(means)
        found.append(centred(samples, sample) / mean if mean else 0.0)
    return spread(samples, found)


def gpg(samples: Sequence[Scored]) -> list[float]:
    trained = {sample.rollout for sample in samples if any(sample.mask)}
    useful = {rollout for rollout in trained if not is_flat(samples, rollout[0])}
    scale = len(trained) / len(useful) if useful else 1.0
    return spread(samples, [scale * centred(samples, sample) for sample in samples])


@table("whitens", [False, True])
@profile(max_examples=60)
@given(samples=PAID)
def test_max_rl_is_the_formula(whitens: bool, samples: list[Scored]) -> None:
    found = MaxRl(EstimatorSettings(normalize_advantages=whitens))(batch_of(samples))
    assert found.dtype == torch.float32
    expected = whitened(samples, max_rl(samples)) if whitens else max_rl(samples)
    assert found.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@profile(max_examples=60)
@given(samples=SAMPLES)
def test_gpg_is_the_formula(samples: list[Scored]) -> None:
    found = Gpg()(batch_of(samples))
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(gpg(samples), rel=1e-5, abs=1e-5)


@table("estimator", [MaxRl(EstimatorSettings()), Gpg()])
@profile(max_examples=25)
@given(reward=st.floats(0, 1e6, width=32), executions=st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_equal_rewards_have_no_advantage_at_all(estimator: Advantage, reward: float, executions: list[int]) -> None:
    found = estimator(batch_of([Scored(7, execution, reward) for execution in executions]))
    assert found.tolist() == [0.0] * len(executions)


@table("size", [2, 3, 5])
@table("p", [0.1, 0.5, 0.9])
def test_the_gradient_of_max_rl_is_that_of_the_likelihood_cut_off(size: int, p: float) -> None:
    """Of a policy that succeeds with probability sigmoid(x): the mean over all groups of `size` rollouts."""

    def cut_off(x: float) -> float:
        failing = 1 / (1 + math.exp(x))
        return -math.fsum(failing**k / k for k in range(1, size))

    expected = 0.0
    for rewards in product([0.0, 1.0], repeat=size):
        samples = [Scored(0, at, reward) for at, reward in enumerate(rewards)]
        advantages = MaxRl(EstimatorSettings())(batch_of(samples)).tolist()
        slope = math.fsum(a * (r - p) for a, r in zip(advantages, rewards, strict=True)) / size
        expected += math.prod(p if reward else 1 - p for reward in rewards) * slope
    at, step = math.log(p / (1 - p)), 1e-5
    assert expected == pytest.approx((cut_off(at + step) - cut_off(at - step)) / (2 * step), rel=1e-5)


def test_a_reward_below_0_is_refused() -> None:
    with pytest.raises(ContractError, match=r"a reward is -0\.5: give rewards of 0 or more"):
        MaxRl(EstimatorSettings())(batch_of([Scored(0, 0, 1.0), Scored(0, 1, -0.5)]))


def test_gpg_makes_up_for_groups_that_teach_nothing_where_they_are_counted() -> None:
    differs = [Scored(0, 0, 1.0), Scored(0, 1, 0.0)]
    assert Gpg()(batch_of(differs)).tolist() == [0.5, -0.5]
    flat = [Scored(1, 0, 1.0), Scored(1, 1, 1.0)]
    assert Gpg()(batch_of([*differs, *flat])).tolist() == [1.0, -1.0, 0.0, 0.0]
    masked = [replace(each, mask=(0,)) for each in flat]
    assert Gpg()(batch_of([*differs, *masked])).tolist() == [0.5, -0.5, 0.0, 0.0]


def test_gpg_counts_over_all_ranks() -> None:
    differs = batch_of([Scored(0, 0, 1.0), Scored(0, 1, 0.0)])
    beside = torch.tensor([6.0, 2.0], dtype=torch.float64)  # six rollouts elsewhere, of which two differ
    assert Gpg()(replace(differs, sum_over_ranks=lambda mine: mine + beside)).tolist() == [1.0, -1.0]
