"""The demo's parts: run files anybody could have written, and a demo that continues where it was killed."""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.errors import RunFolderError
from slime_core.outputs import claim_run_folder
from slime_local.demo import recipe as demo
from slime_local.demo.recipe import make_directory, write_run_file

Slime = Callable[..., Any]

SHORT = """
from slime_core.cli import main
from slime_local.demo import recipe
from slime_local.demo.tasks import WarmUp

recipe.RECIPES["chain"] = WarmUp(steps=7, batch=4)
recipe.SIZES["chain"] = recipe.DemoSize(2, 2, 2e-4)
recipe.EVAL_PROBLEMS, recipe.CHECKPOINT_STEPS = 4, 3
"""
DIES = """
import os
import signal

from slime_core import hookimpl

SLIME_API = "1"


@hookimpl
def slime_train_step_end(event):
    if event.rollout_id == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""Kills the process after a step of the warm start."""


def call(folder: Path, *arguments: str, dies_at: int = -1) -> subprocess.CompletedProcess[str]:
    """`slime demo --task chain` with two rollouts, after a warm start of seven steps that is saved every three."""
    folder.mkdir(exist_ok=True)
    (folder / "dies.py").write_text(DIES)
    command = [sys.executable, "-c", f"{SHORT}main({['demo', '--task', 'chain', '--no-progress', *arguments]!r})"]
    environment = os.environ | {"DIES_AT": str(dies_at)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def weights(folder: Path, run: str) -> bytes:
    """Of the newest checkpoint."""
    *_, newest = sorted((folder / "runs" / run / "checkpoints").iterdir())
    return (newest / "hf" / "model.safetensors").read_bytes()


@pytest.mark.long
@pytest.mark.timeout(900)  # three demos, each of which starts engines and ranks twice
def test_a_demo_that_was_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert call(whole).returncode == 0
    assert call(parts, "--plugin", "./dies.py", dies_at=4).returncode == -signal.SIGKILL
    last = call(parts, "--plugin", "./dies.py")
    assert last.returncode == 0, last.stderr
    assert "continuing after rollout" in last.stdout
    for run in ("demo-base-chain", "demo-chain-0"):
        assert weights(parts, run) == weights(whole, run)


@pytest.mark.parametrize("task", sorted(demo.SIZES))
def test_the_run_file_is_one_for_slime_train(task: str, tmp_path: Path, slime: Slime, tiny_model: Path) -> None:
    run = tmp_path / "run"
    claim_run_folder("--save", run)
    path = demo.run_file(task, 3, tiny_model, run)
    ran = slime("plan", path)
    assert ran.code == 0, ran.err
    rows = (run / "train.jsonl").read_text().splitlines()
    assert len(rows) == demo.SIZES[task].rollout_batch_size * demo.SIZES[task].num_rollout
    assert set(rows).isdisjoint((run / "eval.jsonl").read_text().splitlines())


def test_seeds_differ_in_their_prompts_and_share_the_evaluation(tmp_path: Path) -> None:
    for seed in (0, 1):
        demo.run_file("chain", seed, Path("base"), tmp_path / str(seed))
    train, evaluation = (
        [(tmp_path / seed / f"{name}.jsonl").read_bytes() for seed in "01"] for name in ("train", "eval")
    )
    assert train[0] != train[1]
    assert evaluation[0] == evaluation[1]


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot write .*file/run\.toml"):
        write_run_file(tmp_path / "file" / "run.toml", {})
    with pytest.raises(RunFolderError, match=r"cannot make .*file/init"):
        make_directory(demo.WRITER, tmp_path / "file" / "init", task="chain", seed=0)


def test_a_run_file_keeps_every_value(tmp_path: Path) -> None:
    values = {"text": 'a "b"\n\\ é 😀', "number": 2e-5, "yes": True, "list": [1, "2"], "table": {"in": {"it": 1.0}}}
    path = write_run_file(tmp_path / "deep" / "run.toml", values)  # type: ignore[arg-type]
    assert tomllib.loads(path.read_text("utf-8")) == values
