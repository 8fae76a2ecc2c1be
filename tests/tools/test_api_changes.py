"""What breaks since the last release, on real git histories of a small slime_core."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import table

TOOL = Path(__file__).resolve().parents[2] / "tools/api_changes.py"
INIT = 'from slime_core.sample import Sample, f, gone\n\n__all__ = ["Sample", "f", "gone"]\n'
LAZY = """
from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.sample import Sample as Sample
    from slime_core.sample import gone as gone
else:
    __getattr__, __all__ = exports(__name__)
"""
SAMPLE = """
__all__ = ["Sample", "f"]

class Sample:
    index: int

    def text(self, sep: str) -> str:
        return sep

def f(a: int, b: int) -> int:
    return a

def gone() -> None: ...

def unlisted(a: int) -> None: ...
"""


def commit(repository: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "Change"], check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A release 0.1.0."""
    subprocess.run(["git", "init", "-qb", "main", str(tmp_path)], check=True)
    commit(tmp_path, {"slime_core/__init__.py": INIT, "slime_core/sample.py": SAMPLE, "changelog/README.md": ""})
    subprocess.run(["git", "-C", str(tmp_path), "tag", "v0.1.0"], check=True)
    return tmp_path


def run(repository: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(TOOL), "--repository", str(repository), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_is_added_and_what_is_not_promised_breaks_nothing(repository: Path) -> None:
    text = SAMPLE.replace("a: int, b: int)", "a: int, b: int, c: int = 0)").replace(
        "def unlisted(a: int)", "def unlisted()"
    )
    commit(repository, {"slime_core/sample.py": text})
    done = run(repository, "--version", "0.1.1")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@table(
    "before, after, told",
    [
        ("sep: str", "", "slime_core.sample.Sample.text: Parameter was removed"),
        ("b: int", "*, b: int", "slime_core.sample.f: Parameter kind was changed"),
        ("    index: int\n", "", "slime_core.sample.Sample.index: Public object was removed"),
    ],
)
def test_what_is_broken_is_named_and_a_patch_release_may_not(
    repository: Path, before: str, after: str, told: str
) -> None:
    commit(
        repository,
        {"slime_core/sample.py": SAMPLE.replace(before, after), "changelog/+x.changed.md": "`text` `f` `index`"},
    )
    done = run(repository, "--version", "0.1.1")
    assert done.returncode == 1
    assert told in done.stdout
    assert "a patch release breaks nothing" in done.stdout


def test_a_minor_release_may_break_what_its_changelog_names(repository: Path) -> None:
    commit(repository, {"slime_core/__init__.py": INIT.replace(", gone", "").replace(', "gone"', "")})
    done = run(repository, "--version", "0.2.0")
    assert done.returncode == 1
    assert "slime_core.gone: is gone  <- not in the changelog" in done.stdout
    commit(repository, {"changelog/+gone.removed.md": "`gone` is gone: write `f`."})
    assert run(repository, "--version", "0.2.0").returncode == 0


def test_a_package_that_imports_on_first_use_keeps_its_promises_too(repository: Path) -> None:
    commit(repository, {"slime_core/__init__.py": LAZY})
    assert run(repository, "--version", "0.1.1").stdout.splitlines()[0] == "slime_core.f: is gone"
    subprocess.run(["git", "-C", str(repository), "tag", "v0.1.1"], check=True)
    text = SAMPLE.replace("def gone()", "def gone(a: int)")
    commit(
        repository,
        {
            "slime_core/__init__.py": LAZY.replace("    from slime_core.sample import Sample as Sample\n", ""),
            "slime_core/sample.py": text,
        },
    )
    stdout = run(repository, "--version", "0.1.2").stdout
    assert "slime_core.Sample: is gone" in stdout
    assert "slime_core.sample.gone: Parameter was added as required" in stdout


def test_a_package_beside_the_core_keeps_its_promises_too(repository: Path) -> None:
    there = "plugins/slime-testing/slime_testing/__init__.py"
    commit(repository, {there: '__all__ = ["make"]\n\ndef make(a: int) -> None: ...\n'})
    assert run(repository, "--version", "0.1.1").stdout == ""
    subprocess.run(["git", "-C", str(repository), "tag", "v0.1.1"], check=True)
    commit(repository, {there: '__all__ = ["make"]\n\ndef make() -> None: ...\n'})
    assert "slime_testing.make: Parameter was removed" in run(repository, "--version", "0.1.2").stdout


def test_before_the_first_release_there_is_nothing_to_compare_with(repository: Path) -> None:
    subprocess.run(["git", "-C", str(repository), "tag", "-d", "v0.1.0"], check=True, capture_output=True)
    done = run(repository)
    assert (done.returncode, done.stdout) == (0, "there is no release yet: nothing to compare with\n")
