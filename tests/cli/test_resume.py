"""`slime resume`: the same run, longer."""

import signal
import subprocess
import sys

from slime_core.run import Checkpoint
from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime

KILLING = '''
import os
import signal
from pathlib import Path

from slime_core import RewardContext, Sample, Score


async def digits(sample: Sample, ctx: RewardContext) -> Score:
    """Kills the run in its second rollout, once."""
    kill, metrics = Path("kill"), Path("runs/run/metrics.jsonl")
    if kill.exists() and metrics.exists() and "rollout/step" in metrics.read_text():
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''


def test_a_run_killed_before_its_first_checkpoint_says_that_it_begins_anew(project: Project, slime: Slime) -> None:
    (project.root / "rewards.py").write_text(KILLING)
    (project.root / "kill").touch()
    killed = subprocess.run(
        [sys.executable, "-m", "slime_core", "train", "run.toml", "--no-progress"], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert b"starts over" not in killed.stdout
    ran = slime.ok("resume", project.run, "--no-progress")
    assert ran.out.splitlines()[:2] == [
        f"{project.run} has no checkpoint of trained weights (save_interval = 10): it starts over",
        "run: 2 rollouts",
    ]
    assert [row.rollout_id for row in MetricsLog.read(project.run / "metrics.jsonl")] == [0, 1]


def test_a_folder_without_a_run_is_refused(project: Project, slime: Slime) -> None:
    for command in ("resume", "eval"):
        ran = slime(command, project.root)  # its run.toml is the user's
        assert ran.code == 2
        assert "is not a run folder: it has no checkpoints" in ran.err
    (project.root / "run.toml").unlink()
    for command in ("resume", "eval"):
        assert "is not a run folder: it has no run.toml" in slime(command, project.root).err


def test_a_setting_that_changed_under_a_run_is_named_and_refused_or_accepted(project: Project, slime: Slime) -> None:
    assert slime("train", "run.toml", "--num-rollout", 1).code == 0
    kept = project.run / "run.toml"
    kept.write_text(kept.read_text().replace("lr = 0.001", "lr = 0.002"))
    ran = slime("resume", project.run, "--num-rollout", 2)
    assert ran.code != 0
    assert "was made with other settings:\n  lr: 0.001 -> 0.002\nPut them back (`slime resume" in ran.err
    assert "--accept-changed-settings" in ran.err
    ran = slime.ok("resume", project.run, "--num-rollout", 2, "--accept-changed-settings", "--no-progress")
    assert "changed since the checkpoint, and accepted: lr: 0.001 -> 0.002" in ran.out
    assert Checkpoint(project.run / "checkpoints/rollout_000002", 2).state().config["lr"] == 0.002
    assert "accept_changed" not in kept.read_text()
    assert slime("resume", project.run, "--num-rollout", 3).code == 0  # the new setting is the run's own now
    assert "was made with other settings" in slime.refused("resume", project.run, "--lr", "1e-5"), "though it is done"


def test_a_longer_run_of_epochs_keeps_its_learning_rates_or_is_refused_before_run_toml_changes(
    project: Project, slime: Slime
) -> None:
    project.write_run(lr_decay_style="cosine", num_rollout=None, num_epoch=1)
    assert slime("train", "run.toml").code == 0
    assert len(MetricsLog.read(project.run / "metrics.jsonl")) == 2  # 8 prompts, 4 a rollout
    before = (project.run / "run.toml").read_bytes()
    refusal = slime.refused("resume", project.run, "--num-rollout", 4)
    assert "lr_decay_iters: 2 -> 4" in refusal
    assert "the added steps then train at min_lr = 0.0" in refusal
    assert (project.run / "run.toml").read_bytes() == before
    assert slime("resume", project.run, "--num-rollout", 4, "--lr-decay-iters", 2).code == 0
    rows = MetricsLog.read(project.run / "metrics.jsonl")
    rates = [row.metrics["train/lr-pg_0"] for row in rows if "train/lr-pg_0" in row.metrics]
    assert rates == [1e-3, 0.0, 0.0, 0.0]
