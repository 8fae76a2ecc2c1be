"""Examined: what `slime checkpoints` says of each checkpoint, and which ones go."""

import asyncio
import os
from pathlib import Path

import pytest

from slime_core.run import list_checkpoints
from slime_core.run.checkpoint import MANIFEST
from slime_view.cli.checkpoints import examine, prune
from tests.checkpoints import write_checkpoint
from tests.conftest import NO_STATE


async def save(directory: Path) -> None:
    (directory / "hf").mkdir()
    (directory / "hf" / "weights").write_bytes(b"\1" * 1000)


def write(root: Path, *numbers: int) -> list[Path]:
    return [asyncio.run(write_checkpoint(root, number, NO_STATE, save, keep=99)).path for number in numbers]


def damage(path: Path) -> None:
    (path / "hf" / "weights").write_bytes(b"\2" * 1000)


def names(root: Path) -> list[str]:
    return [path.name for path in list_checkpoints(root)]


def test_every_checkpoint_is_listed_oldest_first_with_its_size_and_when_it_was_complete(tmp_path: Path) -> None:
    first, second = write(tmp_path, 5, 10)
    for path, seconds in ((first, 1000), (second, 2000)):
        os.utime(path / MANIFEST, (seconds, seconds))
    found = examine(tmp_path, contents=True)
    assert [each.path for each in found] == [first, second]
    assert [each.written for each in found] == [1000.0, 2000.0]
    assert [each.size for each in found] == [
        1000 + (path / MANIFEST).stat().st_size + (path / "state.json").stat().st_size for path in (first, second)
    ]
    assert [(each.verified, each.problem) for each in found] == [(True, ""), (True, "")]


def test_without_contents_sizes_alone_are_compared(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 5)
    damage(path)
    (quick,) = examine(tmp_path, contents=False)
    assert (quick.verified, quick.problem) == (False, "")
    (slow,) = examine(tmp_path, contents=True)
    assert not slow.verified
    assert slow.problem == f"checkpoint {path} is damaged: hf/weights is not what was written"
    (path / "hf" / "weights").unlink()
    (quick,) = examine(tmp_path, contents=False)
    assert quick.problem == f"checkpoint {path} is damaged: hf/weights is missing"


@pytest.mark.parametrize(
    ("keep", "gone"), [(1, [5, 10, 15]), (2, [5, 10]), (3, [5]), (4, []), (9, [])], ids=lambda value: str(value)
)
def test_the_newest_whole_ones_stay(tmp_path: Path, keep: int, gone: list[int]) -> None:
    written = write(tmp_path, 5, 10, 15, 20)
    removed = prune(tmp_path, keep)
    assert list(removed) == written[: len(gone)]
    assert names(tmp_path) == [path.name for path in written[len(gone) :]]


def test_a_damaged_one_counts_for_nothing(tmp_path: Path) -> None:
    written = write(tmp_path, 5, 10, 15, 20)
    damage(written[2])
    assert list(prune(tmp_path, 2)) == written[:1]
    assert names(tmp_path) == ["rollout_000010", "rollout_000015", "rollout_000020"]
