"""Whole runs through the command line, compared with the local launcher."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_run import small_run

from slime_launcher_ray.guard import marked_processes

MARK = "SLIME_RAY_TEST"
GONE_S = 10.0


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run."""
    return small_run(tmp_path_factory.mktemp("run"))


def train(run_file: Path, name: str, *flags: str, **environment: str) -> "subprocess.Popen[str]":
    """Start a run with this name, without this process's setting for reproducible sums."""
    inherited = {name: each for name, each in os.environ.items() if name != "MKL_CBWR"}
    command = [sys.executable, "-m", "slime_core", "train", str(run_file), "--save", str(run_file.parent / name)]
    with (run_file.parent / f"{name}.txt").open("w") as log:
        return subprocess.Popen(
            [*command, "--no-progress", *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=inherited | environment | {MARK: name},
            start_new_session=True,
        )


def results(run: Path) -> dict[str, bytes]:
    """Files that must be equal in two runs with the same seed."""
    files = [run / "ledger.jsonl", *run.glob("samples/*"), *run.glob("checkpoints/*/*/*")]
    return {str(file.relative_to(run)): file.read_bytes() for file in sorted(files)}


def left(name: str) -> list[int]:
    """Processes of a run that are still alive after a while."""
    end = time.monotonic() + GONE_S
    while (found := marked_processes(f"{MARK}={name}")) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_run_is_bitwise_equal_to_the_local_launcher(run_file: Path) -> None:
    for launcher in ("local", "ray"):
        run = train(run_file, launcher, "--launcher", launcher, "--engine.local.workers", "1")
        assert run.wait(240) == 0, (run_file.parent / f"{launcher}.txt").read_text()
    ours, theirs = (results(run_file.parent / launcher) for launcher in ("ray", "local"))
    assert len(ours) > 10
    assert ours == theirs
    assert left("ray") == []
    printed = (run_file.parent / "ray.txt").read_text()
    assert "raylet" not in printed
    assert "logging.cc" not in printed
