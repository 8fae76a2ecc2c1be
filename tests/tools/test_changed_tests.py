"""Which tests a branch changes, on real git histories."""

import json
from pathlib import Path

import pytest

from tests.tables import table
from tests.tools.repository import commit, git, run_tool

TEST = "def test_it() -> None:\n    assert 1 + 1 == 2\n\n\n" + "# so that git sees a rename\n" * 20


def matrix(repository: Path, base: str = "main") -> dict[str, int]:
    done = run_tool("changed_tests.py", "--repository", repository, "--base", base)
    assert done.returncode == 0, done.stderr
    return {row["file"]: row["num_gpus"] for row in json.loads(done.stdout)}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Some tests on main, and a branch that has not changed anything yet."""
    path = tmp_path / "origin"
    old = {name: f"# {name}\n{TEST}" for name in ("tests/test_old.py", "tests/test_gone.py", "tests/e2e/test_whole.py")}
    commit(path, {**old, "tests/conftest.py": "", "slime_core/test_me.txt": ""})
    git(path, "switch", "-qc", "branch")
    return path


def test_what_a_file_says_counts_and_its_place_where_it_says_nothing(repository: Path) -> None:
    said = {"four": "NUM_GPUS = 4", "none": "NUM_GPUS: int = 0", "both": "NUM_GPUS = 1\nNUM_GPUS = 2"}
    commit(repository, {f"tests/e2e/test_{name}.py": f"{line}\n{TEST}" for name, line in said.items()})
    commit(repository, {"tests/e2e/test_quiet.py": TEST, "tests/test_quiet.py": TEST})
    commit(repository, {"tests/test_inside.py": f"def f() -> None:\n    NUM_GPUS = 3\n{TEST}"})
    assert matrix(repository) == {
        "tests/e2e/test_both.py": 2,
        "tests/e2e/test_four.py": 4,
        "tests/e2e/test_none.py": 0,
        "tests/e2e/test_quiet.py": 8,
        "tests/test_inside.py": 0,
        "tests/test_quiet.py": 0,
    }


def test_changed_and_renamed_files_are_run_and_deleted_ones_are_not(repository: Path) -> None:
    git(repository, "mv", "tests/test_old.py", "tests/test_new name.py")
    git(repository, "rm", "-q", "tests/test_gone.py")
    commit(repository, {"tests/e2e/test_whole.py": f"# changed\n{TEST}", "tests/test_größe.py": TEST})
    assert matrix(repository) == {"tests/e2e/test_whole.py": 8, "tests/test_größe.py": 0, "tests/test_new name.py": 0}


def test_what_main_did_since_is_not_the_branchs(repository: Path) -> None:
    commit(repository, {"tests/test_mine.py": TEST})
    git(repository, "switch", "-q", "main")
    commit(repository, {"tests/test_theirs.py": TEST})
    git(repository, "switch", "-q", "branch")
    assert matrix(repository) == {"tests/test_mine.py": 0}


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_fetches_what_it_lacks(repository: Path, tmp_path: Path, depth: int) -> None:
    for number in range(3):
        commit(repository, {f"tests/test_{number}.py": TEST})
    clone = tmp_path / "clone"
    url = f"file://{repository}"
    git(tmp_path, "clone", "-q", "--depth", str(depth), "--branch", "branch", url, str(clone))
    assert matrix(clone, "origin/main") == {f"tests/test_{number}.py": 0 for number in range(3)}


@table(
    "line, told",
    [
        ("NUM_GPUS = len('four')", "line 1: NUM_GPUS = len('four'); expected a number such as 8"),
        ("NUM_GPUS = -1", "NUM_GPUS = -1; expected"),
        ("NUM_GPUS = '4'", "NUM_GPUS = '4'; expected"),
        ("NUM_GPUS = True", "NUM_GPUS = True; expected"),
        ("NUM_GPUS = (", "line 1: '(' was never closed"),
    ],
)
def test_a_number_that_cannot_be_read_is_refused_by_file_and_line(repository: Path, line: str, told: str) -> None:
    commit(repository, {"tests/test_strange.py": f"{line}\n"})
    done = run_tool("changed_tests.py", "--repository", repository, "--base", "main")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("changed_tests: tests/test_strange.py, line 1: ")
    assert told in done.stderr
