"""`make ci-clone` notes the tree that passed on a clean clone, and no other."""

import subprocess
from pathlib import Path

from tests.tools.repository import ROOT, commit, git

CHECKOUT = {
    "tools/ci_clone": (ROOT / "tools" / "ci_clone").read_text(),
    ".ci/run": 'cd "$(dirname "$0")/.." && test "$CI" = true && test -f wanted\n',
    ".gitignore": "/.cache/\n",
}


def test_a_tree_that_passes_is_noted_and_one_that_fails_is_not(tmp_path: Path) -> None:
    """A repository whose `.ci/run` passes if the file `wanted` is committed."""
    noted = tmp_path / ".cache" / "ci-passed"
    commit(tmp_path, CHECKOUT)
    command = ["bash", tmp_path / "tools" / "ci_clone"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert not noted.is_file()
    commit(tmp_path, {"wanted": ""})
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert noted.read_text().strip() == git(tmp_path, "rev-parse", "HEAD^{tree}")
