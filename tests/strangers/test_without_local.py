"""The core without what needs torch, slime-train and slime-local: what starts no engine and no rank works, and the
rest says what to install.
"""

import json
import shutil
from pathlib import Path

import pytest

from slime_testing import write_tiny_model
from tests.strangers.conftest import Room

pytestmark = pytest.mark.long  # in the core's suite its room alone would be a minute
RUN = 'hf_checkpoint = "model"\nprompt_data = "rows.jsonl"\ninput_key = "question"\nlabel_key = "answer"\n'
OWN = "def anything(batch):\n    return batch\n"
ROWS = [{"question": "What is 1+1?", "answer": "2", "response": text} for text in (r"\boxed{2}", r"\boxed{3}")]


@pytest.fixture(scope="module")
def folder(room: Room) -> Path:
    """A user's, with a run file and rows."""
    made = room.folder / "user"
    shutil.rmtree(made, ignore_errors=True)  # in random order rooms change more often than once
    made.mkdir()
    (made / "run.toml").write_text(RUN + 'num_rollout = 1\nreward = {use = "math"}\n')
    chosen = 'advantage = {use = "./own.py:anything"}\nloss = {use = "./own.py:anything"}\n'
    (made / "chosen.toml").write_text((made / "run.toml").read_text() + chosen)
    (made / "own.py").write_text(OWN)
    (made / "sft.toml").write_text(RUN + 'num_epoch = 1\nloss = {use = "sft_loss"}\n')
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    write_tiny_model(made / "model")
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["train", "--help"],
        ["plan", "--help"],
        ["plugins", "list"],
        ["plugins", "show", "math"],
        ["plugins", "check", "slime-reward-math"],
        ["doctor"],
        ["simulate", "--help"],
        ["why", "--help"],
        ["reward", "try", "math", "--data", "rows.jsonl", "--label-key", "answer"],
    ],
    ids=" ".join,
)
def test_what_starts_no_engine_works(room: Room, folder: Path, command: list[str]) -> None:
    done = room.run("slime", *command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("plan run.toml", "slime-train"),
        ("train run.toml", "slime-train"),
        ("plan chosen.toml", "slime-local"),
        ("train chosen.toml", "slime-local"),
        ("sft sft.toml", "slime-train"),
        ("generate model rows.jsonl", "slime-local"),
        ("demo", "slime-local"),
    ],
)
def test_what_needs_one_says_what_to_install(room: Room, folder: Path, command: str, package: str) -> None:
    done = room.run("slime", *command.split(), cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"pip install -e . -e ./plugins/{package}" in done.stderr, done.stderr
