"""Damaged checkpoints, full disks and awkward last steps: named, survived, never a silent restart at 0."""

import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path

import pytest

from slime_core.errors import CheckpointError
from slime_core.run import list_checkpoints, newest_checkpoint
from tests.faults.accounts import Accounts, contents, differences
from tests.faults.figures import WHOLE, measured
from tests.faults.nursery import DONE, FAILED, At, Nursery
from tests.faults.stories import Story, World
from tests.faults.toy import write_project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

DISKS_KIB = range(48, 200, 4 if WHOLE else 48)
"""Sizes of disks that are too small for a run, but for the last ones."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where projects go."""
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def nursery(root: Path) -> Iterator[Nursery]:
    with Nursery(root) as made:
        yield made


@pytest.fixture(scope="module")
def world(root: Path, nursery: Nursery) -> World:
    """Toy runs, `sync`."""
    return World.alone(root / "world", nursery)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x04
    path.write_bytes(data)


def test_damage_to_any_file_is_named_and_the_checkpoint_before_is_used(world: World, nursery: Nursery) -> None:
    newest = list_checkpoints(world.root / "half-way" / "checkpoints")[-1]
    files = [path.relative_to(newest) for path in sorted(newest.rglob("*")) if path.is_file()]
    assert len(files) == 4
    with measured("a checkpoint's file truncated, changed or deleted") as figures:
        damages = [truncate, flip, Path.unlink]
        for damage, file in product(damages, files) if WHOLE else zip(cycle(damages), files, strict=False):
            figures.tried += 1
            if problem := _damage(world, nursery, damage, file):
                figures.problems.append(f"{damage.__name__} {file}: {problem}")
            else:
                figures.resumed += 1


def _damage(world: World, nursery: Nursery, damage: Callable[[Path], None], file: Path) -> str:
    """What is wrong with a run whose newest checkpoint was damaged."""
    folder = world.root / "damaged"
    shutil.copytree(world.root / "half-way", folder)
    before, newest = list_checkpoints(folder / "checkpoints")
    damage(newest / file)
    life = nursery.live(folder, world.run_file)
    said = f"continuing after rollout {int(before.name.removeprefix('rollout_'))} of"
    if life.code != DONE or f"{newest} is damaged" not in life.output or said not in life.output:
        return f"it ended with {life.code}: {life.output}"
    different, accounts = differences(folder, world.expected), Accounts.of(folder, world.max_uses)
    shutil.rmtree(folder)
    return str(different or accounts.lost or accounts.over_used or "")


def test_when_all_are_damaged_nothing_is_started_over(world: World, nursery: Nursery) -> None:
    folder = world.root / "ruined"
    shutil.copytree(world.root / "half-way", folder)
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        flip(checkpoint / "state.json")
    before = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    life = nursery.live(folder, world.run_file)
    assert life.code == FAILED
    assert "CheckpointError: no usable checkpoint" in life.output
    assert {path: path.read_bytes() for path in folder.glob("*.jsonl")} == before
    with pytest.raises(CheckpointError):
        newest_checkpoint(folder / "checkpoints", print)


def test_a_disk_that_fills_at_any_time_is_named_and_room_is_all_it_needs(
    tiny_disk: Path, remount: Callable[[Path, str], None], world: World, nursery: Nursery
) -> None:
    with measured("a disk that is full") as figures:
        for size in DISKS_KIB:
            folder = tiny_disk / "run"
            remount(tiny_disk, f"{size}k")
            life = nursery.live(folder, world.run_file)
            if life.code != DONE:
                figures.tried += 1
                if life.code != FAILED or not _names_the_disk(life.output):
                    figures.problems.append(f"{size} KiB: it ended with {life.code}: {life.output}")
            saved = newest_checkpoint(folder / "checkpoints", print) if (folder / "checkpoints").exists() else None
            remount(tiny_disk, "8m")
            again = nursery.live(folder, world.run_file)
            if again.code != DONE or (saved and saved.rollout_id and "after rollout 0" in again.output):
                figures.problems.append(f"{size} KiB, then room: it ended with {again.code}: {again.output}")
            elif different := differences(folder, world.expected):
                figures.problems.append(f"{size} KiB, then room: not as undisturbed: {different}")
            elif life.code != DONE:
                figures.resumed += 1
            shutil.rmtree(folder)
    assert figures.tried >= 2


def _names_the_disk(output: str) -> bool:
    """Whether the error is one that a user can do something about."""
    last = output.strip().splitlines()[-1]
    return "RunFolderError" in last and ("No space left" in last or "the disk is full" in last)


EPOCH_END, LAST_STEP = 2, 4
"""Checkpoints at the end of an epoch, and after the last step, of a run of two epochs of two rollouts."""


@pytest.mark.parametrize("checkpoint", [EPOCH_END, LAST_STEP])
def test_a_resume_at_the_end_of_an_epoch_and_after_the_last_step(root: Path, nursery: Nursery, checkpoint: int) -> None:
    project = root / f"epochs-{checkpoint}"
    project.mkdir()
    run_file = write_project(
        project, rows=12, rollout_batch_size=6, over_sampling_batch_size=None, group_filter=None, num_rollout=4
    )
    assert nursery.live(project / "undisturbed", run_file).code == DONE
    expected, folder = contents(project / "undisturbed"), project / "run"
    at = At("leave slime_core.run.checkpoint:Saver._seal", 1 + checkpoint // 2)
    assert nursery.live(folder, run_file, at).killed
    saved = newest_checkpoint(folder / "checkpoints", print)
    assert saved is not None
    assert saved.rollout_id == checkpoint
    assert nursery.live(folder, run_file).code == DONE
    assert differences(folder, expected) == []


def test_an_unsaved_last_step_is_made_again(world: World) -> None:
    names = (
        "enter slime_core.telemetry.metrics:MetricsLog.append",
        "leave slime_core.telemetry.metrics:MetricsLog.append",
        "enter slime_core.run.checkpoint:Saver.save",
        "leave slime_core.run.checkpoint:Saver.save",
        "leave slime_core.run.checkpoint:Saver.finished",
        "enter slime_core.run.session:Session.close",
        "enter slime_core.run.folder:RunFolder.close",
    )
    names = names if WHOLE else names[1::2]
    with measured("killed around the last step") as figures:
        world.run_stories([Story((At(name, world.fresh[name]),)) for name in names], figures)
    assert figures.tried == len(names)
