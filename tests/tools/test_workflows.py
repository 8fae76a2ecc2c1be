"""The workflow is what its template and table make, and every job of it can be run here."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/workflows.py"
SCAFFOLD = "plugins/slime-testing/slime_testing/scaffold/templates/common/plugin-contracts.yml.tmpl"
WORKFLOWS = ROOT / ".github/workflows"
JOBS = YAML(typ="safe").load((WORKFLOWS / "pr-test.yml").read_text("utf-8"))["jobs"]
COMMANDS = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The tool in a repository of its own, which has this one's workflows."""
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    shutil.copytree(ROOT / "tests/e2e", tmp_path / "tests/e2e")
    for name in ("tools/workflows.py", "tools/runner.py", "tools/changed_tests.py", SCAFFOLD):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path / "tools/workflows.py"


def run(tool: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(tool), *argv], capture_output=True, text=True, check=False)


def table(tool: Path, text: str) -> Path:
    """Give it other jobs, and the workflow they make; return the workflow."""
    (tool.parents[1] / ".github/workflows/jobs.toml").write_text(text, "utf-8")
    done = run(tool, "--write")
    assert done.returncode == 0, done.stderr
    return tool.parents[1] / ".github/workflows/pr-test.yml"


def test_the_workflow_is_what_its_template_and_table_make() -> None:
    done = run(TOOL, "--check")
    assert done.returncode == 0, done.stdout


def test_a_stale_workflow_is_shown_with_what_to_type(tool: Path) -> None:
    path = tool.parents[1] / ".github/workflows/pr-test.yml"
    path.write_text(path.read_text("utf-8").replace("make demo", "make lemon"), "utf-8")
    done = run(tool, "--check")
    assert done.returncode == 1
    assert "-      - run: make lemon" in done.stdout
    assert "python tools/workflows.py --write" in done.stdout
    assert run(tool, "--write").returncode == 0
    assert run(tool, "--check").returncode == 0


def test_every_target_that_a_job_makes_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    made = {
        word for command in COMMANDS if command.startswith("make ") for word in re.findall(r" ([a-z0-9-]+)\b", command)
    }
    assert made
    assert made <= targets


def test_a_matrix_is_run_value_by_value_with_the_jobs_environment(tool: Path) -> None:
    table(
        tool,
        '[mine]\nname = "mine"\nwhen = "always"\nminutes = 5\nstrict = true\nover = ["a", "b"]\n'
        'run = ["echo $EACH $SLIME_PLUGINS_STRICT"]\n',
    )
    done = run(tool, "--run", "mine")
    assert (done.returncode, done.stdout.count("a 1\n"), done.stdout.count("b 1\n")) == (0, 1, 1)


def test_a_run_stops_at_the_first_command_that_fails(tool: Path) -> None:
    table(
        tool,
        '[mine]\nname = "mine"\nwhen = "always"\nminutes = 5\nrun = ["echo one", "false | cat; exit 7", "echo two"]\n',
    )
    done = run(tool, "--run", "mine")
    assert done.returncode == 1, "a pipe fails where one of its commands does, as on a runner"
    assert "\ntwo\n" not in done.stdout


def test_a_job_that_does_not_exist_is_refused_with_the_nearest() -> None:
    done = run(TOOL, "--run", "cpu-unitest")
    assert done.returncode == 2
    assert "there is no job 'cpu-unitest'. Did you mean cpu-unittest? Jobs: cpu-unittest, " in done.stderr
