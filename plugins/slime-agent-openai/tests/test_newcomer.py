"""What somebody types who does it for the first time, and what the command line answers."""

from pathlib import Path

import pytest
from whole_run import AGENT, write_run

from slime_core.cli import run_cli


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and the error as one line."""
    code = run_cli(arguments)
    return code, " ".join(capsys.readouterr().err.split())


def test_a_plan_with_what_is_no_agent_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agents.py").write_text("def solve(task, client): ...")
    code, said = answered(capsys, "plan", str(write_run(tmp_path, f'agent = "{tmp_path}/agents.py:solve"')))
    assert code == 2
    what = "agents.py:1: solve(task, client) does not take one argument"
    assert f"{what}: an agent is a function of one argument, the task: write def solve(task)" in said


def test_a_run_whose_agent_returns_none_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agents.py").write_text(AGENT.replace("return float(task.label in said.content)", "return None"))
    run_file = write_run(tmp_path, f'agent = "{tmp_path}/agents.py:solve"\nworkers = 1')
    code, said = answered(capsys, "train", str(run_file), "--no-progress", "--reward-on-error", "raise")
    assert code == 1
    assert "An agent returns a number" in said


def test_a_run_with_another_models_parser_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    run_file = write_run(tmp_path, f'agent = "{tmp_path}/agents.py:solve"\nworkers = 1\nparser = "glm"')
    code, said = answered(capsys, "train", str(run_file), "--no-progress")
    assert code == 2
    assert 'parser = "glm" does not read the calls that the chat template of' in said
    assert 'which parser = "hermes" reads' in said
