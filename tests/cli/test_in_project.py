"""A run whose parts are functions and classes of the project: no package, no entry point."""

import sys
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard
from tests.conftest import Project, Slime

PARTS = """
from slime_core import Score, Settings
from slime_core.roles import CorrectionOutput, LossOutput


class Scale(Settings):
    scale: float = 1.0


def length(sample, ctx):
    return Score(len(sample.response) / 10)


class Scaled:
    def __init__(self, settings: Scale, setup):
        self.scale = settings.scale

    def __call__(self, groups, ctx):
        return [[None if each is None else self.scale * each for each in row] for row in ctx.rewards]


def centered(batch):
    return (batch.rewards_S - batch.rewards_S.mean())[batch.sample_index_T]


class Reinforce:
    def __call__(self, batch):
        return LossOutput(-batch.advantages_T * batch.log_probs_T, {"mine": batch.advantages_T})


def as_it_is(batch):
    return CorrectionOutput(batch.loss_mask_T, batch.loss_mask_T)


class Log:
    def __init__(self, settings, setup):
        self.path = setup.run_dir / "mine.jsonl"

    async def log(self, step, metrics):
        with self.path.open("a") as file:
            file.write(f"{step}\\\\n")

    async def close(self): ...
""".replace("\\\\", "\\")


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the project are imported anew, and the import path is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "parts", raising=False)


def test_a_run_of_nothing_but_functions_and_classes(project: Project, slime: Slime) -> None:
    (project.root / "parts.py").write_text(PARTS)
    parts = {
        "reward": "length",
        "reward_shaper": "Scaled",
        "advantage": "centered",
        "loss": "Reinforce",
        "correction": "as_it_is",
        "tracker": "Log",
    }
    tables: dict[str, Any] = {role: {"use": f"./parts.py:{name}"} for role, name in parts.items()}
    tables["reward_shaper"]["./parts.py:Scaled"] = {"scale": 0.5}
    project.write_run(num_rollout=1, **tables)
    slime.ok("train", "run.toml")
    (row,) = MetricsLog.read(project.run / "metrics.jsonl")
    assert "train/mine" in row.metrics
    assert (project.run / "mine.jsonl").read_text() == "1\n"
    samples = [row.to_dict() for row in Shard(project.run / "samples" / "rollout_000000.parquet").rows()]
    for sample in samples:
        assert sample["reward"] == pytest.approx(len(sample["response"]) / 10)
