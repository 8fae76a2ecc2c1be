import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slime_core.config import parse_config
from slime_core.errors import ConfigError, RunFolderError
from slime_core.outputs import claim_run_folder, is_run_folder
from slime_core.run import RunFolder
from slime_core.sample import Json
from tests.tables import table

VALUES: dict[str, Json] = {
    "hf_checkpoint": "model",
    "save": "run",
    "prompt_data": "train.jsonl",
    "num_rollout": 10,
    "reward": {"use": "math"},
}


def config(**changes: Json) -> dict[str, Json]:
    return parse_config(VALUES | changes).to_dict()


def open_and_close(root: Path, values: dict[str, Json]) -> None:
    with RunFolder.open(root, values):
        pass


def test_a_new_folder_holds_the_configuration_and_places_for_everything(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "run"
    with RunFolder.open(root, config()) as folder:
        assert tomllib.loads(folder.config_file.read_text()) == config()
        assert all(path.is_dir() for path in (folder.checkpoints, folder.samples, folder.logs, folder.scratch))
    assert not folder.scratch.exists()
    folder.close()


def test_the_configuration_may_change_until_a_checkpoint_needs_it_accepted(tmp_path: Path) -> None:
    def kept() -> dict[str, Json]:
        return tomllib.loads((tmp_path / "run.toml").read_text())

    open_and_close(tmp_path, config())
    open_and_close(tmp_path, config(prompt_data="mended.jsonl"))
    assert kept()["prompt_data"] == "mended.jsonl"
    (tmp_path / "checkpoints" / "rollout_000005").mkdir()
    with RunFolder.open(tmp_path, config(lr=1e-4)) as folder:
        assert kept()["prompt_data"] == "mended.jsonl"
        folder.write_config()
    assert kept()["lr"] == 1e-4


HOLD = """
import json, sys
from pathlib import Path
from slime_core.run import RunFolder
with RunFolder.open(Path(sys.argv[1]), json.loads(sys.argv[2])) as folder:
    (folder.scratch / "weights.bin").write_text("in use")
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_in(root: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLD, str(root), json.dumps(config())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    with another_process_in(tmp_path) as process:
        said = f"process {process.pid} is running in {tmp_path}: wait for it, or give another --save"
        with pytest.raises(RunFolderError, match=re.escape(said)):
            RunFolder.open(tmp_path, config())
        assert (tmp_path / "scratch/weights.bin").read_text() == "in use"
        process.kill()
    open_and_close(tmp_path, config())


@table("below", ["", "run", "deep/run"])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / below
    with pytest.raises(RunFolderError, match=re.escape(f"cannot use run folder {root}: ")):
        RunFolder.open(root, config())


def test_a_read_only_place_is_named(read_only_folder: Path) -> None:
    root = read_only_folder / "run"
    with pytest.raises(RunFolderError, match=re.escape(f"cannot use run folder {root}: Read-only file system")):
        RunFolder.open(root, config())


def test_a_full_disk_is_named(tiny_disk: Path) -> None:
    root = tiny_disk / "run"
    open_and_close(root, config())
    (tiny_disk / "filler").write_bytes(bytes(1_000_000))
    with pytest.raises(OSError, match="No space left"):
        (tiny_disk / "more").write_bytes(bytes(2_000_000))
    with pytest.raises(RunFolderError, match=re.escape(f"cannot use run folder {root}: No space left on device")):
        RunFolder.open(root, config())


@pytest.mark.parametrize("names", [[".slime-run"], ["lock"], ["lock", ".slime-run"]])
def test_a_run_that_was_killed_at_its_number_starts_there_again(tmp_path: Path, names: list[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    claim_run_folder("save", folder)
    assert is_run_folder(folder)


def test_a_number_does_not_claim_a_folder_with_files_of_a_user(tmp_path: Path) -> None:
    for name in (".slime-run", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="this run did not make it"):
        claim_run_folder("save", tmp_path)
