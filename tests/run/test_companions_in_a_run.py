"""Whole runs with models beside the policy: interrupted and resumed, they are the same run to the bit."""

from collections.abc import Mapping

import pytest

from slime_core.sample import Json
from tests.conftest import Project, Slime
from tests.run.reading import training_metrics, weights

KEYS: dict[str, Mapping[str, Json]] = {
    "kl_loss": {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "low_var_kl", "ref_update_interval": 2},
    "ppo": {
        "advantage_estimator": "ppo",
        "lambd": 0.9,
        "critic_lr": 1e-3,
        "num_critic_only_steps": 1,
        "num_steps_per_rollout": 2,
        "kl_coef": 0.05,
    },
}


@pytest.mark.parametrize("kind", [pytest.param(each, marks=() if each == "ppo" else pytest.mark.long) for each in KEYS])
def test_interrupted_and_resumed_it_is_the_same_run(project: Project, slime: Slime, kind: str) -> None:
    project.write_run(**KEYS[kind], num_rollout=4, save="whole")
    slime.ok("train", "run.toml")
    project.write_run(**KEYS[kind], num_rollout=3, save="cut")
    assert slime("train", "run.toml").code == 0
    assert slime("resume", "cut", "--num-rollout", 4).code == 0
    cut, whole = project.root / "cut", project.root / "whole"
    assert weights(cut) == weights(whole)
    assert training_metrics(cut) == training_metrics(whole)
    first, *_, last = training_metrics(whole)
    match kind:
        case "kl_loss":
            assert first["train/kl_loss"] == 0.0
            assert last["train/kl_loss"] > 0.0
            assert "optim/reference.safetensors" in weights(cut)
        case "ppo":
            assert "train/pg_loss" not in first
            assert {"train/pg_loss", "train/critic-value_loss", "train/values"} <= last.keys()
