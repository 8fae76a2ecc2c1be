"""A run file in YAML says what the same keys in TOML say, and is refused in the same words."""

from pathlib import Path

import pytest

from slime_core.cli import run_cli
from slime_core.config import read_run_file
from slime_core.errors import ConfigError
from tests.tables import table

YAML = """# a comment
hf_checkpoint: models/tiny
lr: 1e-6
rollout_stop: [END, "no"]
apply_chat_template: true
eval_prompt_data: {aime: a.jsonl}
reward:
  use: math
  math: {timeout_s: 2.5}
"""
TOML = """
hf_checkpoint = "models/tiny"
lr = 1e-6
rollout_stop = ["END", "no"]
apply_chat_template = true
eval_prompt_data = {aime = "a.jsonl"}
[reward]
use = "math"
[reward.math]
timeout_s = 2.5
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@table("name", ["run.yaml", "run.yml"])
def test_the_same_keys_are_the_same_values(tmp_path: Path, name: str) -> None:
    assert read_run_file(written(tmp_path, name, YAML)) == read_run_file(written(tmp_path, "run.toml", TOML))


def test_an_empty_file_has_no_keys(tmp_path: Path) -> None:
    assert read_run_file(written(tmp_path, "run.yaml", "# nothing\n")) == {}


@table(
    "text, said",
    [
        ("lr: 1\nseed: 2\nlr: 3\n", 'line 3: found duplicate key "lr"'),
        ("reward:\n  use: a\n  use: b\n", 'line 3: found duplicate key "use"'),
        ("lr: [1\n", "line 2: expected ',' or ']'"),
        ("- lr\n", "holds a list, expected keys and their values"),
        ("1: 2\n", "the key 1 of the file is not text"),
        ("reward:\n  use:\n", "reward.use has no value: give it one, or leave it out"),
        ("a: !!python/object:os.system x\n", "line 1: could not determine a constructor"),
        ("seed: 2026-01-01\n", "seed is a date or time, which no key takes"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_run_file(written(tmp_path, "run.yaml", text))
    assert said in str(raised.value)
    assert "run.yaml" in str(raised.value)


@table("name, text", [("run.yaml", "seed: 1\nlearning_rte: 1\n"), ("run.toml", "seed = 1\nlearning_rte = 1\n")])
def test_an_unknown_key_is_named_with_its_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    path = written(tmp_path, name, text)
    assert run_cli(["plan", str(path)]) == 2
    assert f"{path}, line 2: unknown key 'learning_rte'." in capfd.readouterr().err


def test_a_key_that_stands_twice_in_different_tables_is_named_without_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "run.toml", "rte = 1\n[reward.math]\nrte = 2\n")
    assert run_cli(["plan", str(path)]) == 2
    assert "line" not in next(each for each in capfd.readouterr().err.splitlines() if "unknown key 'rte'" in each)


def test_a_missing_file_names_those_of_both_kinds(tmp_path: Path) -> None:
    for name in ("a.toml", "b.yaml"):
        written(tmp_path, name, "")
    with pytest.raises(ConfigError, match=r"has a\.toml, b\.yaml\."):
        read_run_file(tmp_path / "run.yaml")


def test_flags_of_choices_are_known_by_what_the_file_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "run.yaml", "plugins: {only: [slime-nowhere]}\n")
    assert run_cli(["plan", str(path)]) == 2
    assert "slime-nowhere" in capfd.readouterr().err
