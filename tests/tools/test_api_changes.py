"""What breaks since the last release, on real git histories of a small slime_core."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.tables import table
from tests.tools.repository import commit, git, run_tool

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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A release 0.1.0."""
    commit(tmp_path, {"slime_core/__init__.py": INIT, "slime_core/sample.py": SAMPLE, "changelog/README.md": ""})
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def changes(repository: Path, *argv: str) -> "CompletedProcess[str]":
    return run_tool("api_changes.py", "--repository", repository, *argv)


def test_what_is_added_and_what_is_not_promised_breaks_nothing(repository: Path) -> None:
    text = SAMPLE.replace("a: int, b: int)", "a: int, b: int, c: int = 0)").replace(
        "def unlisted(a: int)", "def unlisted()"
    )
    commit(repository, {"slime_core/sample.py": text})
    done = changes(repository, "--version", "0.1.1")
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
    done = changes(repository, "--version", "0.1.1")
    assert done.returncode == 1
    assert told in done.stdout
    assert "a patch release breaks nothing" in done.stdout


def test_a_minor_release_may_break_what_its_changelog_names(repository: Path) -> None:
    commit(repository, {"slime_core/__init__.py": INIT.replace(", gone", "").replace(', "gone"', "")})
    done = changes(repository, "--version", "0.2.0")
    assert done.returncode == 1
    assert "slime_core.gone: is gone  <- not in the changelog" in done.stdout
    commit(repository, {"changelog/+gone.removed.md": "`gone` is gone: write `f`."})
    assert changes(repository, "--version", "0.2.0").returncode == 0


def test_a_package_that_imports_on_first_use_keeps_its_promises_too(repository: Path) -> None:
    commit(repository, {"slime_core/__init__.py": LAZY})
    assert changes(repository, "--version", "0.1.1").stdout.splitlines()[0] == "slime_core.f: is gone"
    git(repository, "tag", "v0.1.1")
    text = SAMPLE.replace("def gone()", "def gone(a: int)")
    commit(
        repository,
        {
            "slime_core/__init__.py": LAZY.replace("    from slime_core.sample import Sample as Sample\n", ""),
            "slime_core/sample.py": text,
        },
    )
    stdout = changes(repository, "--version", "0.1.2").stdout
    assert "slime_core.Sample: is gone" in stdout
    assert "slime_core.sample.gone: Parameter was added as required" in stdout
