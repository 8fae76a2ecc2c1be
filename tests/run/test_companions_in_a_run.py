"""Whole runs with models beside the policy: interrupted and resumed, they are the same run to the bit."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from slime_core.run import newest_checkpoint
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime

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


def exact(run: Path) -> dict[str, bytes]:
    """All that a trainer goes on from, file by file."""
    newest = newest_checkpoint(run / "checkpoints", pytest.fail)
    assert newest is not None
    folder = newest.path / "optim"
    return {
        f"{path.relative_to(folder)} {name}": value.tobytes()
        for path in sorted(folder.rglob("*.safetensors"))
        for name, value in load_file(path).items()
    }


def trained(run: Path) -> list[dict[str, float]]:
    return [
        {name: value for name, value in row.metrics.items() if name.startswith("train/")}
        for row in MetricsLog.read(run / "metrics.jsonl")
    ]


@pytest.mark.parametrize("kind", [pytest.param(each, marks=() if each == "ppo" else pytest.mark.long) for each in KEYS])
def test_interrupted_and_resumed_it_is_the_same_run(project: Project, slime: Slime, kind: str) -> None:
    project.write_run(**KEYS[kind], num_rollout=4, save="whole")
    slime.ok("train", "run.toml")
    project.write_run(**KEYS[kind], num_rollout=3, save="cut")
    assert slime("train", "run.toml").code == 0
    assert slime("resume", "cut", "--num-rollout", 4).code == 0
    assert exact(project.root / "cut") == exact(project.root / "whole")
    assert trained(project.root / "cut") == trained(project.root / "whole")
    first, *_, last = trained(project.root / "whole")
    match kind:
        case "kl_loss":
            assert first["train/kl_loss"] == 0.0
            assert last["train/kl_loss"] > 0.0
            assert "reference.safetensors weights" in exact(project.root / "cut")
        case "ppo":
            assert "train/pg_loss" not in first
            assert {"train/pg_loss", "train/critic-value_loss", "train/values"} <= last.keys()
