"""Real local runs of Trackio, read with its own API."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.sample import Json

if importlib.util.find_spec("trackio") is None:
    pytest.skip("trackio is not installed", allow_module_level=True)

Process = Callable[..., None]

READ = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
runs = [run.name for run in trackio.Api().runs("sums")]
print(json.dumps({name: SQLiteStorage.get_logs("sums", name) for name in runs}, default=str))
"""


def read(folder: Path) -> dict[str, list[dict[str, Json]]]:
    """Rows of each run by name, read in a separate process: Trackio reads its folder's path only once."""
    ran = subprocess.run(
        [sys.executable, "-c", READ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TRACKIO_DIR": str(folder / "trackio")},
    )
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def test_killed_run_resumes_with_each_step_once(tmp_path: Path, process: Process) -> None:
    rows = [(step, {"rollout/raw_reward": step / 10}) for step in range(8)]
    process("trackio", {"project": "sums"}, tmp_path / "first", rows[:5], killed=True)
    process("trackio", {"project": "sums"}, tmp_path / "first", rows[3:])
    ((name, history),) = read(tmp_path).items()
    assert name.startswith("first-")
    assert [(row["step"], row["rollout/raw_reward"]) for row in history] == [(step, step / 10) for step in range(8)]


def test_two_run_folders_with_the_same_name_are_two_runs(tmp_path: Path, process: Process) -> None:
    for folder in ("a", "b"):
        process("trackio", {"project": "sums"}, tmp_path / folder / "first", [(0, {"train/loss": 0.5})])
    assert [len(rows) for rows in read(tmp_path).values()] == [1, 1]
