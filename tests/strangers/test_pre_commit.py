"""The pre-commit hook in a stranger's repository: pre-commit builds slime-core from its own, and runs the kit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slime_testing.scaffold import License, Names, render, write_package
from tests.strangers.conftest import ROOT

pytestmark = pytest.mark.long


def committed(folder: Path) -> Path:
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    return folder


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of slime-core, as it is here."""
    folder = tmp_path_factory.mktemp("slime-core")
    for package in ("slime_core", "plugins/slime-testing"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    return committed(folder)


@pytest.mark.parametrize("works", [True, False])
def test_it_judges_the_plugin_of_the_repository(upstream: Path, tmp_path: Path, works: bool) -> None:
    names = Names.parse("reward", "mine")
    write_package(render(names, License.MIT), plugin := tmp_path / names.dist)
    if not works:
        module = plugin / names.module / "plugin.py"
        module.write_text(module.read_text("utf-8").replace('SLIME_API = "1"', 'SLIME_API = "0"'), "utf-8")
    hook = ["try-repo", str(upstream), "slime-plugins-check", "--hook-stage", "manual", "--all-files", "--verbose"]
    done = subprocess.run(
        [Path(sys.executable).with_name("pre-commit"), *hook],
        cwd=committed(plugin),
        env=os.environ | {"PRE_COMMIT_HOME": str(upstream.parent / "pre-commit")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == works, done.stdout + done.stderr
    assert ("slime-reward-mine 0.1.0" if works else "is written for plugin API 0") in done.stdout
