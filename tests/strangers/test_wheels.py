"""As strangers do it: wheels in a clean environment, new plugins, their tests, their place in the list.

test_kit_alone does the same with a plugin of every kind.
"""

import json
from pathlib import Path

import pytest

from tests.strangers.conftest import Room
from tests.tables import table

pytestmark = pytest.mark.long
NEEDS_TORCH = {"reward": False, "loss": True}
"""Kinds of new plugins, and whether their tests say that they need torch where there is none, as here."""


@pytest.fixture(scope="module")
def scaffolds(room: Room) -> dict[str, Path]:
    """New plugins, written by the command and installed."""
    packages = {}
    for kind in NEEDS_TORCH:
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


@table("kind, needs_torch", NEEDS_TORCH.items())
def test_a_new_plugin_is_green_at_its_first_pytest(
    room: Room, scaffolds: dict[str, Path], kind: str, needs_torch: bool
) -> None:
    said = room.pytest(scaffolds[kind])
    assert " passed" in said
    assert ("torch" in said) == needs_torch, said


def test_every_new_plugin_is_listed(room: Room, scaffolds: dict[str, Path]) -> None:
    done = room.run("slime", "plugins", "list", "--load", "--json")
    assert done.returncode == 0, done.stderr
    loaded = {each["plugin"] for each in json.loads(done.stdout)["plugins"] if each["state"] == "loaded"}
    assert {package.name for package in scaffolds.values()} - loaded == set()
