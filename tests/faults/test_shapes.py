"""Files of a run folder whose values have the wrong type or sign, under a hash that fits: an error that says so."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slime_core.errors import SlimeError
from slime_core.run import GroupState, list_checkpoints, newest_checkpoint
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog
from slime_view.ledger_view import LedgerView
from tests.faults.nursery import DONE, FAILED, Nursery
from tests.faults.stories import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

STRANGE: tuple[Json, ...] = (None, -1, 1e300, "x", [], {"x": 5})
"""What is put in the place of every value."""
CHILDREN = 2
"""Values of a list or a table that are tried, and as many below each."""


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Nursery]]:
    """A run that was killed, and what continues it."""
    root = tmp_path_factory.mktemp("shapes")
    with Nursery(root) as nursery:
        yield World.alone(root / "world", nursery), nursery


def variants(value: Json) -> Iterator[tuple[str, Json]]:
    """The value with one part replaced or left out, and which one."""
    yield from ((f" = {strange!r}", strange) for strange in STRANGE)
    if isinstance(value, dict):
        for key in list(value)[:CHILDREN] if len(value) > 12 else list(value):
            yield f".{key} left out", {name: each for name, each in value.items() if name != key}
            yield from ((f".{key}{place}", {**value, key: other}) for place, other in variants(value[key]))
    if isinstance(value, list):
        for number, each in enumerate(value[:CHILDREN]):
            for place, other in variants(each):
                yield f"[{number}]{place}", [*value[:number], other, *value[number + 1 :]]


def write_state(checkpoint: Path, state: Json) -> None:
    """Write state.json, and its hash into the manifest."""
    text = json.dumps(state).encode()
    (checkpoint / "state.json").write_bytes(text)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def read_all(folder: Path) -> None:
    """Read what `slime ledger`, `report` and `resume` read."""
    view = LedgerView.of(folder)
    _ = view.totals
    for state in GroupState:
        list(view.groups(state))
    view.history("prompts:e0:r0:d0")
    MetricsLog.read(folder / "metrics.jsonl")
    newest_checkpoint(folder / "checkpoints", str)


def surprises(folder: Path, changes: Iterator[tuple[str, Json]], write: Callable[[Json], None]) -> list[str]:
    """Changes that were answered with anything but an error of ours."""
    found = []
    for place, value in changes:
        write(value)
        try:
            with suppress(SlimeError):
                read_all(folder)
        except Exception as error:
            found.append(f"{place}: {type(error).__name__}: {error}")
    return found


def test_no_shape_of_a_checkpoints_own_files_is_a_traceback(half_way: tuple[World, Nursery], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(half_way[0].root / "half-way", folder)
    newest = list_checkpoints(folder / "checkpoints")[-1]
    manifest, state = (json.loads((newest / name).read_text()) for name in ("manifest.json", "state.json"))
    found = surprises(folder, variants(state), lambda value: write_state(newest, value))
    write_state(newest, state)
    found += surprises(
        folder, variants(manifest), lambda value: (newest / "manifest.json").write_text(json.dumps(value)) and None
    )
    assert found == []


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
