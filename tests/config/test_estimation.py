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


READS_A_COLUMN = """
from slime_core import hookimpl
from slime_core.roles import AdvantageSpec, BatchTransformSpec, Grain

SLIME_API = "1"


def columns(sample, group, ctx):
    return {"turn": [0.0] * sample.response_length}


@hookimpl
def slime_batch_transforms():
    yield BatchTransformSpec("turns", lambda settings, setup: columns, columns={"turn": Grain.TOKEN})


@hookimpl
def slime_advantages():
    yield AdvantageSpec("by_turn", lambda settings, setup: None, token_columns=("turn",))
    yield AdvantageSpec("by_hour", lambda settings, setup: None, token_columns=("hour",))
"""


def test_a_column_that_nothing_makes_is_refused_with_what_makes_it(project: Project, slime: Slime) -> None:
    (project.root / "by_turn.py").write_text(READS_A_COLUMN)
    project.write_run(advantage={"use": "by_turn"})
    ran = slime("plan", "run.toml", "--plugin", "./by_turn.py")
    assert ran.code == 2
    assert "reads a column 'turn' that no batch transform of this run makes" in ran.err
    assert '[batch_transform] use = ["turns"]' in ran.err
    project.write_run(advantage={"use": "by_turn"}, batch_transform={"use": ["turns"]})
    ran = slime("plan", "run.toml", "--plugin", "./by_turn.py")
    assert ran.code == 0, ran.err


def test_a_column_of_no_installed_transform_is_refused_beside_those_in_use(project: Project, slime: Slime) -> None:
    (project.root / "by_turn.py").write_text(READS_A_COLUMN)
    project.write_run(advantage={"use": "by_hour"}, batch_transform={"use": ["turns"]})
    ran = slime("plan", "run.toml", "--plugin", "./by_turn.py")
    assert ran.code == 2
    assert "reads a column 'hour'" in ran.err
    assert '[batch_transform] use = ["turns", "…"]' in ran.err


def test_the_generators_own_reward_is_refused_where_it_gives_none(project: Project, slime: Slime) -> None:
    project.write_run(reward={"use": "environment"})
    ran = slime("plan", "run.toml")
    assert ran.code == 2
    assert "reward 'environment' is what the generator itself gives, and 'single_turn' gives none" in ran.err
    assert '[reward] use = "math"' in ran.err
