"""Real offline runs of W&B: the tests read the files that `wandb sync` uploads."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slime_core.errors import ConfigError
from slime_core.roles import TrackerSetup
from slime_trackers import WandbSettings
from slime_trackers.wandb_run import records, wait_until_closed, wandb_tracker

if importlib.util.find_spec("wandb") is None:
    pytest.skip("wandb is not installed", allow_module_level=True)

Process = Callable[..., None]


def records_of(run_dir: Path) -> Iterator[Any]:
    """All records of the run folder's files, in order."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted((run_dir / "wandb").glob("offline-run-*/run-*.wandb")):
        yield from map(Record.FromString, records(path.read_bytes()))


def curve(run_dir: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values of a metric."""
    found = []
    for each in records_of(run_dir):
        items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in each.history.item}
        if name in items:
            found.append((items["_step"], items[name]))
    return found


def runs(run_dir: Path) -> list[Any]:
    """The run record of each process."""
    return [each.run for each in records_of(run_dir) if each.WhichOneof("record_type") == "run"]


def test_killed_run_resumes_with_each_step_once(tmp_path: Path, process: Process) -> None:
    run_dir, settings = tmp_path / "first", {"mode": "offline", "project": "sums", "group": "seeds", "tags": ["tiny"]}
    rows = [(step, {"rollout/raw_reward": step / 10, "train/loss": -1.0}) for step in range(8)]
    process("wandb", settings, run_dir, rows[:5], killed=True)
    process("wandb", settings, run_dir, rows[3:])
    run = runs(run_dir)[-1]
    assert {each.run_id for each in runs(run_dir)} == {run.run_id}
    assert (run.project, run.run_group, run.display_name, run.tags[:]) == ("sums", "seeds", "first", ["tiny"])
    assert curve(run_dir, "rollout/raw_reward") == [(step, step / 10) for step in range(8)]


def test_late_evaluation_of_a_step_is_sent(tmp_path: Path, process: Process) -> None:
    run_dir = tmp_path / "first"
    process("wandb", {"mode": "offline"}, run_dir, [(1, {"train/loss": 0.5})], killed=True)
    process("wandb", {"mode": "offline"}, run_dir, [(1, {"train/loss": 0.5}), (1, {"eval/heldout": 0.25})])
    assert curve(run_dir, "train/loss") == [(1, 0.5)]
    assert curve(run_dir, "eval/heldout") == [(1, 0.25)]


def test_killed_run_resumes_under_a_wandb_parent(tmp_path: Path, process: Process) -> None:
    import wandb

    wandb.setup()  # starts a service and puts its address into the environment
    try:
        assert "WANDB_SERVICE" in os.environ
        process("wandb", {"mode": "offline"}, tmp_path / "first", [(1, {"train/loss": 0.5})], killed=True)
        process("wandb", {"mode": "offline"}, tmp_path / "first", [(2, {"train/loss": 0.25})])
    finally:
        wandb.teardown()
    assert curve(tmp_path / "first", "train/loss") == [(1, 0.5), (2, 0.25)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_open_files_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run-a.wandb"
    path.write_bytes(b"")
    writing = "import sys, time; file = open(sys.argv[1], 'ab'); print(flush=True); time.sleep(1); file.write(b'last')"
    with subprocess.Popen([sys.executable, "-c", writing, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        wait_until_closed([path])
        assert path.read_bytes() == b"last"


def test_run_file_is_the_config_without_secrets(tmp_path: Path, process: Process) -> None:
    run_dir = tmp_path / "first"
    run_dir.mkdir()
    (run_dir / "run.toml").write_text('lr = 1e-6\n[reward.judge]\nkey = "$env:JUDGE_KEY"\n', "utf-8")
    process("wandb", {"mode": "offline"}, run_dir, [(0, {"train/loss": 0.5})])
    (run,) = runs(run_dir)
    config = {each.key: json.loads(each.value_json) for each in run.config.update}
    assert (config["lr"], config["reward"]) == (1e-6, {"judge": {"key": "$env:JUDGE_KEY"}})


def test_given_run_id_is_continued(tmp_path: Path, process: Process) -> None:
    process("wandb", {"mode": "offline", "run_id": "mine"}, tmp_path / "a", [(0, {"train/loss": 0.5})])
    process("wandb", {"mode": "offline", "run_id": "yours"}, tmp_path / "a", [(0, {"train/loss": 0.25})])
    assert [each.run_id for each in runs(tmp_path / "a")] == ["mine", "yours"]
    assert curve(tmp_path / "a", "train/loss") == [(0, 0.5), (0, 0.25)]


def setup_in(run_dir: Path) -> TrackerSetup:
    return TrackerSetup(lambda *_: None, 0, run_dir=run_dir)


def test_missing_api_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CONFIG_DIR", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r'Set WANDB_API_KEY .*, or run `wandb login`. Or .* "offline"'):
        wandb_tracker(WandbSettings(), setup_in(tmp_path))
    wandb_tracker(WandbSettings(mode="disabled"), setup_in(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_tracker(WandbSettings(), setup_in(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "online")
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
    wandb_tracker(WandbSettings(), setup_in(tmp_path))
    assert not (tmp_path / "wandb").exists()
