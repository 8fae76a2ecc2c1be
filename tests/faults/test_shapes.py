"""Files of a run folder whose values have the wrong type or sign, under a hash that fits: an error that says so."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_core.run import list_checkpoints
from slime_core.sample import Json
from tests.faults.nursery import DONE, FAILED, Nursery
from tests.faults.stories import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Nursery]]:
    """A run that was killed, and what continues it."""
    root = tmp_path_factory.mktemp("shapes")
    with Nursery(root) as nursery:
        yield World.alone(root / "world", nursery), nursery


def write_state(checkpoint: Path, state: Json) -> None:
    """Write state.json, and its hash into the manifest."""
    text = json.dumps(state).encode()
    (checkpoint / "state.json").write_bytes(text)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def test_what_plugins_saved_in_another_shape_ends_a_resume_with_a_sentence(
    half_way: tuple[World, Nursery], tmp_path: Path
) -> None:
    world, nursery = half_way
    for part in ("data_source", "scheduler", "buffer"):
        folder = tmp_path / part
        shutil.copytree(world.root / "half-way", folder)
        for checkpoint in list_checkpoints(folder / "checkpoints"):
            state = json.loads((checkpoint / "state.json").read_text())
            state[part] = dict.fromkeys(state[part], "x") or {"groups": 5}
            write_state(checkpoint, state)
        life = nursery.live(folder, world.run_file)
        assert life.code == FAILED
        kind = life.output.strip().splitlines()[-1].partition(":")[0].rpartition(".")[2]
        assert kind in ("CheckpointError", "PluginError"), life.output


@pytest.mark.parametrize("name", ["ledger.jsonl", "metrics.jsonl"])
def test_a_cut_or_missing_log_is_named_before_anything_starts(
    half_way: tuple[World, Nursery], tmp_path: Path, name: str
) -> None:
    world, nursery = half_way
    folder = tmp_path / "run"
    shutil.copytree(world.root / "half-way", folder)
    whole = (folder / name).read_bytes()
    for left in (whole[:40], None):
        (folder / name).unlink()
        if left is not None:
            (folder / name).write_bytes(left)
        life = nursery.live(folder, world.run_file)
        assert life.code == FAILED
        assert "CheckpointError" in life.output
        assert str(folder / name) in life.output
        assert f"has {len(left or b'')} bytes" in life.output
        assert "loading the model" not in life.output
    (folder / name).write_bytes(whole)
    assert nursery.live(folder, world.run_file).code == DONE
