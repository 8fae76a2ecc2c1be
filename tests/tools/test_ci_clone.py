"""`make ci-clone` notes the tree that passed on a clean clone, and no other."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "ci_clone"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose `.ci/run` passes if the file `wanted` is committed."""
    root = tmp_path / "checkout"
    (root / ".ci").mkdir(parents=True)
    (root / "tools").mkdir()
    shutil.copy(SCRIPT, root / "tools" / "ci_clone")
    (root / ".ci" / "run").write_text('cd "$(dirname "$0")/.." && test "$CI" = true && test -f wanted\n')
    (root / ".gitignore").write_text("/.cache/\n")
    _git(root, "init", "--quiet")
    _commit(root)
    return root


def test_a_tree_that_passes_is_noted(checkout: Path) -> None:
    (checkout / "wanted").touch()
    _commit(checkout)
    assert _ci_clone(checkout) == 0
    assert _noted(checkout) == _git(checkout, "rev-parse", "HEAD^{tree}")


def test_a_tree_that_fails_is_not_noted(checkout: Path) -> None:
    assert _ci_clone(checkout) != 0
    assert _noted(checkout) == ""


def _ci_clone(root: Path) -> int:
    return subprocess.run([root / "tools" / "ci_clone"], capture_output=True).returncode


def _noted(root: Path) -> str:
    noted = root / ".cache" / "ci-passed"
    return noted.read_text().strip() if noted.is_file() else ""


def _commit(root: Path) -> None:
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--message", "Change something")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()
