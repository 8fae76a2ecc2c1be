"""Limits of the distance between trainer and sampler."""

import pytest

from slime_core.batching.prepare import LARGEST, MEAN, MismatchLimits
from slime_core.errors import ContractError, MismatchError
from tests.tables import table

METRICS = {MEAN: 0.02, LARGEST: 0.5}


@table("limits", [MismatchLimits(), MismatchLimits(mean=0.02), MismatchLimits(0.03, 0.5)])
def test_up_to_its_limit_a_run_goes_on(limits: MismatchLimits) -> None:
    limits.check(METRICS, rollout_id=3, tokens=9)


@table(
    "limits, said",
    [
        (
            MismatchLimits(mean=0.01),
            r"rollout 3, .*_diff is 0.02 nats, over max_mean_logprob_abs_diff = 0.01 \(mean",
        ),
        (MismatchLimits(mean=0.1, largest=0.4), r"abs_diff_max is 0.5 nats, over max_logprob_abs_diff = 0.4 "),
    ],
)
def test_over_it_the_error_names_step_figure_and_limit(limits: MismatchLimits, said: str) -> None:
    with pytest.raises(MismatchError, match=said):
        limits.check(METRICS, rollout_id=3, tokens=9)


def test_each_limit_stands_alone_and_both_figures_are_told() -> None:
    with pytest.raises(MismatchError, match=r"over max_logprob_abs_diff = 0\.4 \(mean 0\.02, largest 0\.5\): trainer"):
        MismatchLimits(largest=0.4).check(METRICS, rollout_id=3, tokens=9)
    with pytest.raises(
        MismatchError, match=r"over max_logprob_abs_diff = 0\.4 \(mean unknown, largest 0\.5\): trainer"
    ):
        MismatchLimits(largest=0.4).check({LARGEST: 0.5}, rollout_id=3, tokens=9)
    with pytest.raises(MismatchError, match=r"= 0\.01 \(mean 0\.02, largest unknown\): trainer"):
        MismatchLimits(mean=0.01).check({MEAN: 0.02}, rollout_id=3, tokens=9)


def test_a_limit_of_what_is_not_reported_is_an_error_unless_nothing_was_computed() -> None:
    limits = MismatchLimits(mean=0.1)
    limits.check({}, rollout_id=0, tokens=0)
    with pytest.raises(ContractError, match="reports no train/train_rollout_logprob_abs_diff"):
        limits.check({}, rollout_id=0, tokens=1)
