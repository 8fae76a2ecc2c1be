import shutil
from pathlib import Path

import pytest
from whole_run import AGENT, write_run

from slime_core.cli import run_cli


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two groups of two."""
    folder = tmp_path_factory.mktemp("show")
    (folder / "agents.py").write_text(AGENT)
    run_file = write_run(folder, f'agent = "{folder / "agents.py"}:solve"\nworkers = 1')
    assert run_cli(["train", str(run_file), "--no-progress"]) == 0
    return folder / "run"


def test_the_conversations_of_a_run_are_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["agent", "show", str(run)]) == 0
    said = capsys.readouterr().out
    assert said.count("reward 1.0  completed  1 sample") == 4
    assert said.count("  model, ") == 8
    assert "<tool_response>\n    42" in said


def failing(folder: Path) -> Path:
    """A run file whose agent raises at the second of two prompts."""
    raises = "if '17 + 1' in task.prompt:\n        {}['nope']\n    client ="
    (folder / "agents.py").write_text(AGENT.replace("client =", raises, 1))
    return write_run(folder, f'agent = "{folder / "agents.py"}:solve"\nworkers = 1')


def test_why_an_agent_failed_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file = str(failing(tmp_path))
    assert run_cli(["train", run_file, "--no-progress"]) == 1
    assert "KeyError: 'nope'" in capsys.readouterr().err
    assert run_cli(["agent", "show", str(tmp_path / "run")]) == 2  # which says what keeps failed samples
    assert "train again with --max-error-rate 1. The run then keeps" in capsys.readouterr().err
    assert run_cli(["train", run_file, "--no-progress", "--max-error-rate", "1"]) == 0
    capsys.readouterr()
    assert run_cli(["agent", "show", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "failed (agent_KeyError)" in said
    assert "  KeyError: 'nope'" in said


def test_a_page_is_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["agent", "show", str(run), "--html"]) == 0
    path = run / "report" / "agents.html"
    assert f"4 executions: {path}" in capsys.readouterr().out
    assert path.read_text("utf-8").count("<details") == 4


def test_missing_rollout_lists_rollouts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["agent", "show", str(run), "--rollout", "7"]) == 2
    assert "has no rollout 7; it has 0 to 0" in capsys.readouterr().err


def test_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["agent", "show", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "has no rollout yet" in said
    assert "RUN must be a run folder" in said


def test_run_without_its_model_shows_token_ids(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = tmp_path / "run"
    shutil.copytree(run, moved)
    written = (moved / "run.toml").read_text("utf-8")
    (moved / "run.toml").write_text(written.replace(str(run.parent / "model"), str(tmp_path / "gone")), "utf-8")
    assert run_cli(["agent", "show", str(moved)]) == 0
    said = capsys.readouterr()
    assert "--model DIR" in said.err
    assert "It is 42" not in said.out
    assert run_cli(["agent", "show", str(moved), "--model", str(run.parent / "model")]) == 0
    assert "It is 42" in capsys.readouterr().out
