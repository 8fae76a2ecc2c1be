"""The core, the kit and a plugin, and nothing else: the kit is green without torch, and names what a check needs."""

import json
from pathlib import Path

import pytest

from tests.strangers.conftest import KIT, Room, linked_room
from tests.tables import table

pytestmark = pytest.mark.long
GREEN = ("buffer", "engine", "generator", "group-filter", "launcher", "reward", "tracker")
"""Kinds whose checks need nothing."""
TENSORS = ("advantage", "correction", "loss", "trainer", "transport")
"""Kinds whose checks need torch."""
ABSENT = ("torch", "numpy", "pyarrow", "slime_train", "slime_local", "slime_view")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """An environment with a new plugin of each kind, installed."""
    made = linked_room(tmp_path_factory.mktemp("kit"), KIT, also=["pytest"])
    for kind in (*GREEN, *TENSORS):
        done = made.run("slime", "plugins", "new", kind, "mine")
        assert done.returncode == 0, done.stderr
    made.add_wheels(*made.folder.glob("slime-*-mine"))
    return made


def test_nothing_else_is_there(kit: Room) -> None:
    code = f"import importlib.util as u; print([name for name in {ABSENT} if u.find_spec(name)])"
    assert kit.run("python", "-c", code).stdout.strip() == "[]"


@table("kind", [*GREEN, *TENSORS])
def test_a_plugin_is_green_or_says_that_it_needs_torch(kit: Room, kind: str) -> None:
    output = kit.pytest(kit.folder / f"slime-{kind}-mine")
    assert " passed" in output, "the checks of its package"
    assert ("not run: needs torch" in output) == ("torch" in output) == (kind in TENSORS)
    assert "slime-train" not in output or kind in TENSORS


def test_checks_of_a_trainer_say_that_they_need_slime_train(kit: Room, tmp_path: Path) -> None:
    """Where there is a torch of any kind."""
    (tmp_path / "torch.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from slime_core.cli import main; main(sys.argv[1:])"
    done = kit.run("python", "-c", code, "plugins", "check", "slime-trainer-mine", "--json")
    checks = {
        check["identity"]: (check["status"], check["detail"])
        for subject in json.loads(done.stdout)["plugins"][0]["subjects"]
        for check in subject["checks"]
    }
    assert checks["TRN-001"] == ("skipped", "not run: needs slime-train")


def test_weights_for_an_engine_need_slime_train(kit: Room) -> None:
    code = "from pathlib import Path; from slime_testing import publish_model; publish_model(Path('.'), Path('.'), 0)"
    done = kit.run("python", "-c", code)
    assert "unittest.case.SkipTest: needs slime-train" in done.stderr


def test_every_plugin_passes_the_command(kit: Room) -> None:
    report = json.loads(kit.run("slime", "plugins", "check", "--json").stdout)
    checks = {
        (each["plugin"], check["identity"]): check["status"]
        for each in report["plugins"]
        for subject in each["subjects"]
        for check in subject["checks"]
    }
    assert {plugin for plugin, _ in checks} >= {f"slime-{kind}-mine" for kind in (*GREEN, *TENSORS)}
    assert [key for key, status in checks.items() if status == "failed"] == []
