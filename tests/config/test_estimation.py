"""A run in which an estimator would have nothing to compare is refused; one that learns from something else is not."""

from collections.abc import Callable
from typing import Any

import pytest

from slime_core.sample import Json

Slime = Callable[..., Any]
Project = Any


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_a_single_sample_a_prompt_is_refused_where_samples_are_compared(
    project: Project, slime: Slime, estimator: str
) -> None:
    project.write_run(n_samples_per_prompt=1, advantage={"use": estimator})
    ran = slime("plan", "run.toml")
    assert ran.code == 2
    assert f"n_samples_per_prompt = 1: advantage '{estimator}' compares the samples of a prompt" in ran.err
    assert "give 2 or more" in ran.err


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": {"use": "reinforce_plus_plus"}},
        {"advantage": {"use": "grpo", "grpo": {"rewards_normalization": False}}},
        {"use_kl_loss": True, "kl_loss_coef": 0.1},
        {"loss": {"use": "policy_loss", "policy_loss": {"entropy_coef": 0.1}}},
        {"debug_rollout_only": True},
    ],
    ids=str,
)
def test_a_single_sample_a_prompt_is_enough_for_others(
    project: Project, slime: Slime, changes: dict[str, Json]
) -> None:
    project.write_run(n_samples_per_prompt=1, **changes)
    ran = slime("plan", "run.toml")
    assert ran.code == 0, ran.err
