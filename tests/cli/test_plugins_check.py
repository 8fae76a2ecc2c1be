"""`slime plugins check`: the kit without pytest, on what is installed, on a project folder, on a module."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Install, Slime

WATCHER = """
import logging

from slime_core import hookimpl

SLIME_API = "1"


@hookimpl
def slime_run_end(event):
    logging.getLogger(__name__).info("the run has ended")
"""
PYPROJECT = """
[project]
name = "slime-watcher"
version = "0.3"
readme = "README.md"
dependencies = ["slime-core>=0.1,<0.2"]

[project.entry-points."slime.plugins"]
watcher = "slime_watcher.plugin"
"""
SAYS = """
from pydantic import Field
from slime_core import RewardSpec, Score, Settings, hookimpl

SLIME_API = "1"


class SaysSettings(Settings):
    word: str = Field(description="What has to be said")


def build(settings, setup):
    async def says(sample, ctx):
        return Score(float(sample.response == settings.word))

    return says


@hookimpl
def slime_rewards():
    yield RewardSpec("says", build, SaysSettings, summary="1 when it says the word")
"""
CONTRACT = """
from slime_testing import RewardContract, make_sample


class SaysContract(RewardContract):
    settings = {"word": "blue"}
    good = make_sample(response="blue")
    bad = make_sample(response="red")
    needs_label = False
"""


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit starts processes of its own; they look where this one does."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


@pytest.fixture
def watcher(install_plugin: Install) -> None:
    install_plugin("slime-watcher", {"slime_watcher.py": WATCHER}, entry_points={"watcher": "slime_watcher"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project folder that is not installed."""
    package = tmp_path / "slime-watcher" / "src" / "slime_watcher"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(WATCHER)
    (tmp_path / "slime-watcher" / "README.md").write_text("Watches.")
    (tmp_path / "slime-watcher" / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path / "slime-watcher"


def checks(report: dict[str, Any], plugin: str) -> dict[str, Any]:
    (row,) = [each for each in report["plugins"] if each["plugin"] == plugin]
    return {check["identity"]: check for subject in row["subjects"] for check in subject["checks"]}


def test_a_failed_check_has_number_reason_and_advice_and_exit_code_1(slime: Slime, install_plugin: Install) -> None:
    install_plugin("slime-watcher", {"slime_watcher.py": WATCHER}, entry_points={"other": "slime_watcher"})
    ran = slime("plugins", "check", "slime-watcher")
    assert ran.code == 1
    lines = ran.out.splitlines()
    found = next(number for number, line in enumerate(lines) if "failed   PKG-001" in line)
    assert "['other']; expected ['watcher']" in lines[found + 1]
    assert lines[found + 2].strip().startswith("-> ")


def test_without_a_name_every_plugin_but_the_core_is_checked(slime: Slime, watcher: None) -> None:
    there = {each["plugin"] for each in slime("plugins", "list", "--json").json()["plugins"]}
    without = there - {"slime-core", "slime-watcher", "slime-buffer-priority"}  # each takes seconds
    report = slime("plugins", "check", "--json", *(f"--no-plugin={name}" for name in without)).json()
    assert {each["plugin"] for each in report["plugins"]} == {"slime-watcher", "slime-buffer-priority"}


def test_a_project_folder_is_judged_as_if_it_were_installed(slime: Slime, folder: Path) -> None:
    before = list(sys.path), os.environ["PYTHONPATH"]
    ran = slime.ok("plugins", "check", folder, "--json")
    (row,) = ran.json()["plugins"]
    assert (row["plugin"], row["version"]) == ("slime-watcher", "0.3")
    assert checks(ran.json(), "slime-watcher")["PKG-003"]["status"] == "passed"  # imported by a process of its own
    assert (sys.path, os.environ["PYTHONPATH"]) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no pyproject.toml"),
        ("[project", "is not TOML"),
        ("[project]", "has no [project] table with a name"),
        ('[project]\nname = "slime-watcher"', 'write [project.entry-points."slime.plugins"]'),
        (
            PYPROJECT.replace("slime_watcher.plugin", "elsewhere"),
            "entry points refer to elsewhere, which is neither in",
        ),
    ],
)
def test_a_folder_that_is_no_plugin_is_an_error(slime: Slime, folder: Path, text: str | None, message: str) -> None:
    if text is None:
        (folder / "pyproject.toml").unlink()
    else:
        (folder / "pyproject.toml").write_text(text)
    assert message in slime.refused("plugins", "check", folder)


def test_an_unknown_plugin_names_the_nearest(slime: Slime, watcher: None) -> None:
    assert "Did you mean 'slime-watcher'?" in slime.refused("plugins", "check", "slime-wotcher")


@pytest.mark.parametrize("offered", [False, True])
def test_what_only_an_author_knows_comes_with_the_package(slime: Slime, tmp_path: Path, offered: bool) -> None:
    folder = tmp_path / "slime-says"
    folder.mkdir()
    (folder / "slime_says.py").write_text(SAYS)
    (folder / "says_contract.py").write_text(CONTRACT)
    contracts = '[project.entry-points."slime.contracts"]\n"reward.says" = "says_contract:SaysContract"\n'
    text = PYPROJECT.replace("slime_watcher.plugin", "slime_says").replace("watcher", "says")
    (folder / "pyproject.toml").write_text(text + contracts * offered)
    (folder / "README.md").write_text("Offers says.")
    ran = slime("plugins", "check", folder, "--json")
    (row,) = ran.json()["plugins"]
    assert ran.code == 0, ran.out
    assert bool(row["undecided"]) is not offered
    assert {each["contract"] for each in row["subjects"] if each["title"] == "reward says"} == {
        "SaysContract" if offered else "RewardContract"
    }
    assert ("entry point of the group slime.contracts" in slime("plugins", "check", folder).out) is not offered
