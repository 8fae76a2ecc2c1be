"""As strangers do it: wheels in a clean environment, a new plugin of every kind, its tests, its place in the list."""

import json
import shutil
from pathlib import Path

import pytest

from slime_testing.scaffold import KINDS
from tests.strangers.conftest import PLUGINS, Room
from tests.tables import table

NEED_TORCH = {"loss"}
"""Kinds whose tests say that they need torch where there is none, as here."""
ALONE = {"slime-buffer-priority", "slime-reward-math", "slime-trackers"}
"""Plugins whose tests need nothing but themselves; those of the others train by slime-local, or share this checkout's
helpers. The kit judges them all."""
OFTEN = ("reward", "loss")
"""Kinds whose tests run here; test_kit_alone runs those of all."""


@pytest.fixture(scope="module")
def scaffolds(room: Room) -> dict[str, Path]:
    """A new plugin of every kind, written by the command and installed."""
    packages = {}
    for kind in KINDS:
        done = room.run("slime", "plugins", "new", kind, "mine", "--into", "new", "--force")
        assert done.returncode == 0, done.stderr
        packages[kind] = room.folder / "new" / f"slime-{kind}-mine"
    room.install(*packages.values())
    return packages


def test_the_room_has_no_torch_and_sees_nothing_of_this_checkout(room: Room) -> None:
    code = "import importlib.util as u, slime_core; print(u.find_spec('torch'), slime_core.__file__)"
    torch, home = room.run("python", "-c", code).stdout.split()
    assert torch == "None"
    assert Path(home).is_relative_to(room.folder)


@table("kind", OFTEN)
def test_a_new_plugin_is_green_at_its_first_pytest(room: Room, scaffolds: dict[str, Path], kind: str) -> None:
    said = room.pytest(scaffolds[kind])
    assert " passed" in said
    assert ("torch" in said) == (kind in NEED_TORCH), said


@pytest.mark.long
@pytest.mark.parametrize("plugin", [path for path in PLUGINS if path.name in ALONE], ids=lambda path: path.name)
def test_our_plugins_pass_their_tests_as_anybodys(room: Room, plugin: Path) -> None:
    folder = room.folder / "ours" / plugin.name
    shutil.copytree(plugin / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for page in plugin.glob("*.md"):  # a page whose examples are tests goes with them, as in the sdist
        shutil.copy(page, folder)
    assert " passed" in room.pytest(folder)


@pytest.mark.long
def test_every_plugin_passes_the_kit_without_pytest(room: Room, scaffolds: dict[str, Path]) -> None:
    report = json.loads(room.run("slime", "plugins", "check", "--json").stdout)
    failed = {
        each["plugin"]: [
            (check["identity"], check["detail"])
            for subject in each["subjects"]
            for check in subject["checks"]
            if check["status"] == "failed"
        ]
        for each in report["plugins"]
    }
    assert set(failed) >= {path.name for path in (*scaffolds.values(), *PLUGINS)}
    assert {name: checks for name, checks in failed.items() if checks} == {}


def test_every_new_plugin_is_listed(room: Room, scaffolds: dict[str, Path]) -> None:
    done = room.run("slime", "plugins", "list", "--load", "--json")
    assert done.returncode == 0, done.stderr
    loaded = {each["plugin"] for each in json.loads(done.stdout)["plugins"] if each["state"] == "loaded"}
    assert {package.name for package in scaffolds.values()} - loaded == set()
