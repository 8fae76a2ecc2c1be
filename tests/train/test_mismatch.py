"""Train/rollout mismatch: estimators that are unbiased for the KL divergence, and quantiles of the ratio."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_train.algorithm import mismatch, mismatch_extremes

LOG_PROB = st.floats(-8, -0.01)


@given(tokens=st.lists(st.tuples(LOG_PROB, LOG_PROB), min_size=1, max_size=12))
def test_it_is_the_formula(tokens: list[tuple[float, float]]) -> None:
    new, rollout = (torch.tensor(each, dtype=torch.float64) for each in zip(*tokens, strict=True))
    found = mismatch(new, rollout)
    differences = [one - other for one, other in tokens]
    assert found["train_rollout_logprob_abs_diff"].tolist() == pytest.approx([abs(each) for each in differences])
    assert found["train_rollout_k1"].tolist() == pytest.approx([-each for each in differences])
    k3 = [math.exp(each) - 1 - each for each in differences]
    assert found["train_rollout_k3"].tolist() == pytest.approx(k3, rel=1e-9, abs=1e-12)


def test_both_estimators_expect_the_divergence() -> None:
    """Weighed by the sampler's probabilities, over all tokens of a vocabulary."""
    sampler, trainer = (torch.randn(50, generator=torch.Generator().manual_seed(seed)).double() for seed in (0, 1))
    rollout, new = sampler.log_softmax(0), trainer.log_softmax(0)
    divergence = float((rollout.exp() * (rollout - new)).sum())
    found = mismatch(new, rollout)
    assert float((rollout.exp() * found["train_rollout_k1"]).sum()) == pytest.approx(divergence)
    assert float((rollout.exp() * found["train_rollout_k3"]).sum()) == pytest.approx(divergence)


def test_k3_of_tiny_differences_is_no_rounding_noise() -> None:
    """exp(d) - 1 - d of d = 1e-3 in float32 would be off by a tenth; of equal log-probs all are 0."""
    found = mismatch(torch.tensor([-1.0, -1.0]), torch.tensor([-1.001, -1.0]))["train_rollout_k3"]
    assert found[0].item() == pytest.approx(5e-7, rel=2e-2)
    assert found[1].item() == 0.0


@given(differences=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=300))
def test_quantiles_are_of_the_sorted_ratios(differences: list[float]) -> None:
    found = mismatch_extremes(torch.tensor(differences, dtype=torch.float32))
    ordered = sorted(map(math.exp, differences))
    places = {"min": 0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1}
    assert found.pop("train_rollout_logprob_abs_diff_max") == max(map(abs, differences))
    assert found == {
        f"train_rollout_ratio_{name}": pytest.approx(ordered[round(share * (len(ordered) - 1))])
        for name, share in places.items()
    }


def test_a_quantile_of_many_tokens_is_at_its_place() -> None:
    found = mismatch_extremes(torch.arange(1001, 0, -1).log().float())
    assert found.pop("train_rollout_logprob_abs_diff_max") == pytest.approx(math.log(1001))
    assert [round(ratio, 2) for ratio in found.values()] == [1.0, 11.0, 501.0, 991.0, 1001.0]


def test_of_no_tokens_there_is_nothing_to_say() -> None:
    assert mismatch_extremes(torch.empty(0)) == {}
