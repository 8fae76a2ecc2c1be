"""The plugin of the guide, typed from the page: few lines, installed by a stranger, green."""

import json
import re

import pytest

from tests.strangers.conftest import ROOT, Room

MOST_LINES = 35
"""What one has to type for a tested reward, empty lines included."""
FILES = ("README.md", "pyproject.toml", "slime_reward_exact.py", "tests/test_exact.py")


def typed() -> dict[str, str]:
    """The files of the guide, by path."""
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    blocks = dict(re.findall(r'^```\w+ title="(.+?)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL))
    return {path: blocks[path] for path in FILES}


def test_it_is_short() -> None:
    assert sum(len(text.splitlines()) for text in typed().values()) <= MOST_LINES


@pytest.mark.long  # test_docs runs it where it is
def test_it_is_green_and_listed(room: Room) -> None:
    for path, text in typed().items():
        target = room.folder / "by-hand" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    room.install(room.folder / "by-hand", offline=False)  # its build backend is the default one

    assert " passed" in room.pytest(room.folder / "by-hand")
    listed = json.loads(room.run("slime", "plugins", "list", "--role", "reward", "--json").stdout)["plugins"]
    (choice,) = next(each["choices"] for each in listed if each["plugin"] == "slime-reward-exact")
    assert choice["choice"] == "slime-reward-exact/exact"
