import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.errors import CheckpointError, RunFolderError, WorkerError
from slime_core.run import Checkpoint, Saver, newest_checkpoint, verify
from slime_core.run.checkpoint import MANIFEST, SCHEMA_VERSION, CheckpointState, Manifest, first_problem
from slime_core.sample import Json
from tests.checkpoints import is_written, write_checkpoint
from tests.conftest import NO_STATE
from tests.tables import table

STATE: dict[str, Json] = {**NO_STATE, "data_source": {"epoch": 0, "row": 17}}
FILES = ("hf/config.json", "hf/model.safetensors", "manifest.json", "optim/adamw.safetensors", "state.json")


async def save_model(directory: Path) -> None:
    (directory / "hf").mkdir()
    (directory / "optim").mkdir()
    (directory / "hf/config.json").write_text("{}")
    (directory / "hf/model.safetensors").write_bytes(bytes(range(256)) * 8)
    (directory / "optim/adamw.safetensors").write_bytes(b"moments" * 100)


def write(root: Path, rollout_id: int, keep: int = 9, size: int = 0) -> Checkpoint:
    async def save(directory: Path) -> None:
        await save_model(directory)
        (directory / "optim/more").write_bytes(b"\1" * size)

    return asyncio.run(write_checkpoint(root, rollout_id, STATE | {"n": rollout_id}, save, keep))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def newest(root: Path) -> tuple[int | None, list[str]]:
    said: list[str] = []
    found = newest_checkpoint(root, said.append)
    return found.rollout_id if found else None, said


def test_what_was_written_is_found_whole(tmp_path: Path) -> None:
    written = asyncio.run(write_checkpoint(tmp_path, 3, STATE, save_model, keep=2))
    assert written == Checkpoint(tmp_path / "rollout_000003", 3) == verify(written.path)
    assert newest_checkpoint(tmp_path, print) == written
    assert written.state().model_dump(exclude_unset=True) == STATE
    found = sorted(path.relative_to(written.path).as_posix() for path in written.path.rglob("*") if path.is_file())
    assert tuple(found) == FILES
    manifest = json.loads((written.path / MANIFEST).read_text())
    assert sorted(manifest["files"]) == sorted(set(FILES) - {"manifest.json"})
    assert manifest["files"]["hf/config.json"]["bytes"] == 2


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "remove": Path.unlink,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "empty": lambda file: file.write_bytes(b""),
    "flip": flip,
}


@table("name, damage", [(name, damage) for name in FILES for damage in DAMAGES])
def test_damage_to_any_file_is_named_and_the_checkpoint_before_is_used(tmp_path: Path, name: str, damage: str) -> None:
    root = tmp_path / damage / name
    write(root, 5)
    damaged = write(root, 10).path
    DAMAGES[damage](damaged / name)
    with pytest.raises(CheckpointError, match=f"checkpoint {damaged} is damaged: .*") as raised:
        verify(damaged)
    assert name in str(raised.value) or name == "manifest.json"
    rollout_id, said = newest(root)
    assert rollout_id == 5
    assert said == [f"{raised.value}; trying the one before it"]


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_changed_byte_of_the_manifest_changes_what_is_resumed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    written = write(tmp_path_factory.mktemp("run"), 12)
    manifest = written.path / MANIFEST
    content = bytearray(manifest.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    manifest.write_bytes(content)
    try:
        assert verify(written.path) == written
    except CheckpointError:
        return
    assert json.loads(content)["rollout_id"] == 12


def test_a_checkpoint_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    """Someone has copied it: rollout 5 must not be taken for rollout 12."""
    written = write(tmp_path, 5).path
    shutil.copytree(written, tmp_path / "rollout_000012")
    with pytest.raises(CheckpointError, match="rollout_000012 is damaged: its manifest is for rollout 5"):
        verify(tmp_path / "rollout_000012")
    shutil.copytree(written, tmp_path / "copy")
    with pytest.raises(CheckpointError, match="copy is damaged: its manifest is for rollout 5"):
        verify(tmp_path / "copy")


def test_a_checkpoint_of_another_release_says_so(tmp_path: Path) -> None:
    manifest = write(tmp_path, 5).path / MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema_version": 99}))
    with pytest.raises(CheckpointError, match=f"schema version 99, and this release reads {SCHEMA_VERSION}$"):
        newest(tmp_path)


@table("keep", [1, 2])
def test_checkpoints_of_a_future_that_was_given_up_are_removed(tmp_path: Path, keep: int) -> None:
    """After a resume from before a damaged checkpoint, this one must neither be resumed nor counted."""
    root = tmp_path / str(keep)
    write(root, 10, keep)
    (write(root, 15, 2).path / "state.json").unlink()
    write(root, 12, keep)
    assert names(root) == ["rollout_000010", "rollout_000012"][-keep:]


def test_the_best_one_stays_until_there_is_a_better(tmp_path: Path) -> None:
    link = tmp_path / "best"

    async def go() -> None:
        saver = Saver(tmp_path / "checkpoints", keep=1, best=link)
        for number, is_best in ((1, True), (2, False), (3, False), (4, True), (5, False)):
            await saver.save(number, STATE, save_model, is_written, is_best=is_best)
            await saver.finished(wait=True)
            best = 1 if number < 4 else 4
            assert link.resolve() == tmp_path / "checkpoints" / f"rollout_{best:06d}"
            assert names(tmp_path / "checkpoints") == [f"rollout_{each:06d}" for each in sorted({best, number})]
        link.unlink()
        link.mkdir()
        await saver.save(6, STATE, save_model, is_written, is_best=True)
        with pytest.raises(RunFolderError, match=f"^cannot write {link}: "):
            await saver.finished(wait=True)

    asyncio.run(go())
    assert newest(tmp_path / "checkpoints") == (6, [])


def test_a_checkpoint_replaces_one_of_its_name_and_what_a_kill_left(tmp_path: Path) -> None:
    write(tmp_path, 5, keep=1)
    shutil.copytree(tmp_path / "rollout_000005", tmp_path / ".rollout_000007.tmp")
    assert newest(tmp_path) == (5, [])
    second = write(tmp_path, 5, keep=1, size=77)
    assert names(tmp_path) == ["rollout_000005"]
    assert (second.path / "optim/more").stat().st_size == 77


def test_a_full_disk_names_the_checkpoint_that_survives(tiny_disk: Path) -> None:
    write(tiny_disk, 5, size=100_000)
    with pytest.raises(RunFolderError, match="No space left on device") as raised:
        write(tiny_disk, 10, size=4_000_000)
    assert f"cannot write checkpoint {tiny_disk / 'rollout_000010'}" in str(raised.value)
    assert "(0.0 MiB free); rollout_000005 is untouched" in str(raised.value)
    assert names(tiny_disk) == ["rollout_000005"]
    assert newest(tiny_disk) == (5, [])


class Staging:
    """A trainer that writes what it saved when it is asked for the third time, or waited for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error
        self._folder = Path()

    async def save(self, directory: Path) -> None:
        self._folder = directory

    async def finish_save(self, wait: bool) -> bool:
        self.asked += 1
        if self.asked < 3 and not wait:
            return False
        if self._error:
            raise self._error
        await save_model(self._folder)
        return True


def test_a_checkpoint_waits_for_the_files_of_a_trainer_that_saves_later(tmp_path: Path) -> None:
    async def go() -> None:
        saver, trainer = Saver(tmp_path, keep=1), Staging()
        assert await saver.finished(wait=True) is None
        await saver.save(3, STATE, save_model, is_written)
        assert await saver.finished(wait=True) == Checkpoint(tmp_path / "rollout_000003", 3)
        await saver.save(5, STATE, trainer.save, trainer.finish_save)
        for asked in (1, 2):
            assert await saver.finished(wait=False) is None
            assert (names(tmp_path), trainer.asked) == ([".rollout_000005.tmp", "rollout_000003"], asked)
        while (found := await saver.finished(wait=False)) is None:
            assert trainer.asked == 3
            await asyncio.sleep(0)
        assert found == verify(tmp_path / "rollout_000005")
        assert await saver.finished(wait=False) is None

    asyncio.run(go())
    assert names(tmp_path) == ["rollout_000005"]
    assert sorted(json.loads((tmp_path / "rollout_000005" / MANIFEST).read_text())["files"]) == sorted(
        set(FILES) - {MANIFEST}
    )


def test_files_that_a_trainer_cannot_write_are_no_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, 3)

    async def go() -> str:
        saver = Saver(tmp_path, keep=1)
        trainer = Staging(WorkerError("trainer 0 raised OSError: No space left on device"))
        await saver.save(5, STATE, trainer.save, trainer.finish_save)
        with pytest.raises(RunFolderError, match=r"rollout_000005: No space left .*; rollout_000003 is untouched"):
            await saver.finished(wait=True)
        assert await saver.finished(wait=True) is None
        await saver.save(10, STATE, trainer.save, Staging(WorkerError("trainer 0 died")).finish_save)
        return await saver.close(at_once=False)

    assert asyncio.run(go()) == "trainer 0 died"
    assert newest(tmp_path) == (3, [])


def test_a_run_that_ends_at_once_gives_up_what_a_trainer_has_not_written(tmp_path: Path) -> None:
    async def go() -> str:
        saver, trainer = Saver(tmp_path, keep=1), Staging()
        await saver.save(5, STATE, trainer.save, trainer.finish_save)
        return await saver.close(at_once=True)

    assert asyncio.run(go()) == "checkpoint rollout_000005 was not finished"
    assert newest(tmp_path) == (None, [])


DIGEST = "0123456789abcdef" * 4
FILE: dict[str, Json] = {"bytes": 0, "sha256": DIGEST}
WRITTEN: dict[str, Json] = {"schema_version": 1, "rollout_id": 0, "files": {"state.json": FILE}}
LEDGER: dict[str, Json] = {"offset": 0, "sha256": DIGEST, "max_uses": 1}
LEAST: dict[str, Json] = {"step": 0, "metrics_position": 0, "plugins": {}, "config": {}}


def test_the_least_values_are_values() -> None:
    assert Manifest.model_validate(WRITTEN).files["state.json"].bytes == 0
    state = {**LEAST, "ledger": LEDGER, "own": 3}
    assert CheckpointState.model_validate(state).model_dump(exclude_unset=True) == state


@table(
    "changes, says",
    [
        ({"rollout_id": -1}, "rollout_id: Input should be greater than or equal to 0"),
        ({"rollout_id": "0"}, "rollout_id: Input should be a valid integer"),
        ({"schema_version": None}, "schema_version: Input should be a valid integer"),
        ({"files": {"a": FILE | {"bytes": -1}}}, "files.a.bytes: Input should be greater than or equal to 0"),
        ({"files": {"a": FILE | {"sha256": DIGEST[1:]}}}, "files.a.sha256: String should match pattern"),
        ({"files": {"a": FILE | {"sha256": DIGEST + "0"}}}, "files.a.sha256: String should match pattern"),
        ({"files": {"a": FILE | {"sha256": DIGEST.upper()}}}, "files.a.sha256: String should match pattern"),
        ({"step": -1}, "step: Input should be greater than or equal to 0"),
        ({"metrics_position": -1}, "metrics_position: Input should be greater than or equal to 0"),
        ({"ledger": LEDGER | {"offset": -1}}, "ledger.offset: "),
        ({"ledger": LEDGER | {"max_uses": 0}}, "ledger.max_uses: Input should be greater than 0"),
    ],
)
def test_a_file_of_another_shape_is_damage(changes: dict[str, Json], says: str) -> None:
    schema, least = (Manifest, WRITTEN) if changes.keys() <= WRITTEN.keys() else (CheckpointState, LEAST)
    with pytest.raises(ValidationError) as raised:
        schema.model_validate(least | changes)
    assert first_problem(raised.value).startswith(says)
