"""`slime checkpoints`: what is saved, whether it is whole, and fewer of it."""

import asyncio
import os
from pathlib import Path

import pytest

from slime_core.run import RunFolder
from slime_core.run.checkpoint import MANIFEST
from tests.checkpoints import write_checkpoint
from tests.conftest import NO_STATE, Slime


async def save_model(directory: Path) -> None:
    (directory / "hf").mkdir()
    (directory / "hf/model.safetensors").write_bytes(b"weights" * 1000)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with checkpoints 2, 4 and 6."""
    (tmp_path / "run.toml").write_text("")
    for rollout_id in (2, 4, 6):
        asyncio.run(
            write_checkpoint(tmp_path / "checkpoints", rollout_id, {**NO_STATE, "n": rollout_id}, save_model, keep=9)
        )
    return tmp_path


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def flip(run: Path, name: str) -> None:
    path = run / "checkpoints" / name / "hf/model.safetensors"
    path.write_bytes(b"W" + path.read_bytes()[1:])


def test_each_has_its_size_and_when_it_was_complete(run: Path, slime: Slime) -> None:
    paths = sorted((run / "checkpoints").iterdir())
    for seconds, path in enumerate(paths, 1):
        os.utime(path / MANIFEST, (seconds, seconds))
    found = slime("checkpoints", run, "--verify", "--json").json()["checkpoints"]
    sizes = [7000 + (path / MANIFEST).stat().st_size + (path / "state.json").stat().st_size for path in paths]
    assert [(each["written"], each["bytes"], each["state"]) for each in found] == [
        (float(seconds), size, "verified") for seconds, size in enumerate(sizes, 1)
    ]


def test_contents_are_compared_when_asked(run: Path, slime: Slime) -> None:
    flip(run, "rollout_000006")
    assert slime("checkpoints", run).code == 0  # its size is right
    ran = slime("checkpoints", run, "--verify")
    assert ran.code == 1
    assert "rollout_000006 is damaged: hf/model.safetensors is not what was written" in ran.out
    assert ran.out.count("verified") == 2


def test_what_is_missing_is_seen_at_once(run: Path, slime: Slime) -> None:
    (run / "checkpoints/rollout_000004/state.json").unlink()
    (run / "checkpoints/rollout_000002/manifest.json").unlink()
    ran = slime("checkpoints", run, "--json")
    assert ran.code == 1
    found = ran.json()
    assert found["schema_version"] == 1
    assert [each["state"] for each in found["checkpoints"]] == ["damaged", "damaged", "complete"]
    assert "manifest.json: " in found["checkpoints"][0]["problem"]
    assert "state.json is missing" in found["checkpoints"][1]["problem"]


def test_pruning_keeps_the_newest(run: Path, slime: Slime) -> None:
    for keep, removed in ((9, 0), (2, 1), (1, 1)):
        ran = slime.ok("checkpoints", run, "--prune", keep)
        assert names(run) == ["rollout_000002", "rollout_000004", "rollout_000006"][-keep:]
        assert ran.out.count("removed") == removed


def test_pruning_never_leaves_a_damaged_one_alone(run: Path, slime: Slime) -> None:
    flip(run, "rollout_000006")
    ran = slime("checkpoints", run, "--prune", 1)
    assert (ran.code, ran.out.count("damaged")) == (1, 2), "it is named, and why two are left"
    assert names(run) == ["rollout_000004", "rollout_000006"]


def test_a_run_that_goes_on_is_not_pruned_but_listed(run: Path, slime: Slime) -> None:
    with RunFolder.locked(run):
        assert "is running in" in slime.refused("checkpoints", run, "--prune", 1)
        assert slime("checkpoints", run).code == 0
    assert len(names(run)) == 3
