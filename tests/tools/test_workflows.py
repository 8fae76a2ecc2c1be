"""The workflow is what its template and table make; every job of it can be run here, and each test file is in a job."""

import ast
import functools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
LISTED = subprocess.run(["git", "ls-files", "*test_*.py"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
FILES = sorted(path for path in LISTED.split("\n") if Path(path).name.startswith("test_") and path.endswith(".py"))
ELSEWHERE = {"tests/strangers/halves/": "installed by tests/strangers/test_site.py, which runs them there"}
"""Files that no job names, by how they begin, and who runs them."""
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
LEFT_OUT = re.findall(r"not (\w+)", OPTIONS["addopts"][-1])
JOBS = YAML(typ="safe").load((ROOT / ".github/workflows/pr-test.yml").read_text("utf-8"))["jobs"]
COMMANDS = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
TOOL = ROOT / "tools/workflows.py"
SCAFFOLD = "plugins/slime-testing/slime_testing/scaffold/templates/common/plugin-contracts.yml.tmpl"
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

pytestmark = pytest.mark.skipif(not FILES, reason="this is no clone of the repository: git lists no files")


@functools.cache
def recipes(marker: str) -> list[str]:
    """The pytest lines of targets that a job makes, and that run tests with the marker."""
    found = re.findall(r"^([a-z0-9]+):[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    made = {word for command in COMMANDS if command.startswith("make ") for word in command.split()[1:]}
    lines = [
        line
        for name, body in found
        if name in made
        for line in body.split("\n")
        if " -m " in line and "pytest" in line.lower()
    ]
    positive = rf'-m (?:"(?:[^"]* or )?{marker}\b|{marker}\b|"")'
    return [line for line in lines if re.search(positive, line)]


def covered(path: str, line: str) -> bool:
    """Whether a pytest line names the file, a folder of it, or nothing."""
    named = re.findall(r"\s((?:tests|plugins|examples)/[\w/.-]+)", line)
    return not named or any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in named)


def left_alone(path: str) -> list[str]:
    """Why no job runs the file, or a part of it."""
    folders = "|".join(pattern.replace("*", "[^/]+") for pattern in OPTIONS["testpaths"])
    if not re.match(rf"({folders})/", path):
        return [f"{path} is not in testpaths"]
    markers = set(re.findall(r"pytest\.mark\.(\w+)", (ROOT / path).read_text("utf-8"))) & set(LEFT_OUT)
    return [f"{path}: {each}" for each in markers if not any(covered(path, line) for line in recipes(each))]


def test_a_job_runs_each() -> None:
    listed = [path for path in FILES if not path.startswith(tuple(ELSEWHERE))]
    assert len(listed) > 100
    assert [why for path in listed for why in left_alone(path)] == []


@table("path", sorted(map(str, (ROOT / "tests/e2e").glob("test_*.py"))))
def test_an_end_to_end_file_says_what_it_needs_and_is_run_by_a_label(path: str) -> None:
    module = ast.parse(Path(path).read_text("utf-8"))
    names = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert {"prepare", "execute"} <= names
    assert "NUM_GPUS" in {ast.unparse(node.targets[0]) for node in module.body if isinstance(node, ast.Assign)}
    name = Path(path).relative_to(ROOT).as_posix()
    labelled = [command for command in COMMANDS if command.startswith("tools/gpu_lock_exec ") and name in command]
    assert labelled


def test_contract_and_end_to_end_files_can_be_run_by_themselves(tmp_path: Path) -> None:
    tool = ROOT / "tools/runnable.py"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0
    (tmp_path / "tests/e2e").mkdir(parents=True)
    file = tmp_path / "tests/e2e/test_mine.py"
    file.write_text('"""Mine."""\n\nimport re\n\n\ndef test_mine():\n    assert re\n')
    command = [sys.executable, str(tool), "--root", str(tmp_path)]
    done = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (1, "tests/e2e/test_mine.py")
    assert subprocess.run([*command, "--write"], check=False).returncode == 0
    assert subprocess.run([*command, "--check"], check=False).returncode == 0
    ran = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The tool in a repository of its own, which has this one's workflows."""
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    shutil.copytree(ROOT / "tests/e2e", tmp_path / "tests/e2e")
    for name in ("tools/workflows.py", "tools/runner.py", "tools/changed_tests.py", SCAFFOLD):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path / "tools/workflows.py"


def run_workflows(tool: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(tool), *argv], capture_output=True, text=True, check=False)


def write_jobs(tool: Path, text: str) -> Path:
    """Give it other jobs, and the workflow they make; return the workflow."""
    (tool.parents[1] / ".github/workflows/jobs.toml").write_text(text, "utf-8")
    done = run_workflows(tool, "--write")
    assert done.returncode == 0, done.stderr
    return tool.parents[1] / ".github/workflows/pr-test.yml"


def test_the_workflow_is_what_its_template_and_table_make() -> None:
    done = run_workflows(TOOL, "--check")
    assert done.returncode == 0, done.stdout


def test_a_stale_workflow_is_shown_with_what_to_type(tool: Path) -> None:
    path = tool.parents[1] / ".github/workflows/pr-test.yml"
    path.write_text(path.read_text("utf-8").replace("make demo", "make lemon"), "utf-8")
    done = run_workflows(tool, "--check")
    assert done.returncode == 1
    assert "-      - run: make lemon" in done.stdout
    assert "python tools/workflows.py --write" in done.stdout
    assert run_workflows(tool, "--write").returncode == 0
    assert run_workflows(tool, "--check").returncode == 0


def test_a_matrix_is_run_value_by_value_with_the_jobs_environment(tool: Path) -> None:
    write_jobs(
        tool,
        '[mine]\nname = "mine"\nwhen = "always"\nminutes = 5\nstrict = true\nover = ["a", "b"]\n'
        'run = ["echo $EACH $SLIME_PLUGINS_STRICT"]\n',
    )
    done = run_workflows(tool, "--run", "mine")
    assert (done.returncode, done.stdout.count("a 1\n"), done.stdout.count("b 1\n")) == (0, 1, 1)


def test_a_run_stops_at_the_first_command_that_fails(tool: Path) -> None:
    write_jobs(
        tool,
        '[mine]\nname = "mine"\nwhen = "always"\nminutes = 5\nrun = ["echo one", "false | cat; exit 7", "echo two"]\n',
    )
    done = run_workflows(tool, "--run", "mine")
    assert done.returncode == 1, "a pipe fails where one of its commands does, as on a runner"
    assert "\ntwo\n" not in done.stdout


def test_a_job_that_does_not_exist_is_refused_with_the_nearest() -> None:
    done = run_workflows(TOOL, "--run", "cpu-unitest")
    assert done.returncode == 2
    assert "there is no job 'cpu-unitest'. Did you mean cpu-unittest? Jobs: cpu-unittest, " in done.stderr
