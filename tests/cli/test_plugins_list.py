"""`slime plugins list`: what is installed, in which order, and what it offers."""

import sys
from typing import Any

import pytest

from tests.conftest import Install, Slime

WATCHER = """
from slime_core.hookspecs import hookimpl

SLIME_API = "1"


@hookimpl
def slime_run_end(event):
    pass
"""


@pytest.fixture
def watcher(install_plugin: Install) -> None:
    install_plugin("slime-watcher", {"slime_watcher.py": WATCHER}, entry_points={"watcher": "slime_watcher"})


def rows(slime: Slime, *options: str) -> dict[str, Any]:
    ran = slime.ok("plugins", "list", "--json", *options)
    assert ran.json()["schema_version"] == 1
    return {row["plugin"]: row for row in ran.json()["plugins"]}


def test_listing_imports_no_plugin(slime: Slime, watcher: None) -> None:
    row = rows(slime)["slime-watcher"]
    assert (row["version"], row["entry_point"], row["origin"]) == ("1.0", "watcher", "slime_watcher")
    assert (row["state"], row["choices"], row["hooks"]) == ("unknown", None, None)
    assert "slime_watcher" not in sys.modules
    shown = slime("plugins", "list").out
    assert "`slime plugins list --load` shows what they offer" in shown
    assert shown.startswith(" 1  slime-core 0.1.0\n")


def test_a_role_or_load_shows_what_plugins_offer(slime: Slime, watcher: None) -> None:
    offered = rows(slime, "--role", "reward")
    (math,) = [each for each in offered["slime-reward-math"]["choices"] if each["choice"] == "slime-reward-math/math"]
    assert offered["slime-reward-math"]["version"] == "0.1.0"
    assert "slime_reward_math" in math["origin"]
    assert {each["role"] for row in offered.values() for each in row["choices"]} == {"reward"}
    everything = rows(slime, "--load")
    assert "slime-core/local" in {each["choice"] for each in everything["slime-core"]["choices"]}
    assert [each["hook"] for each in everything["slime-watcher"]["hooks"]] == ["slime_run_end"]


def test_the_table_shows_order_choices_and_hooks(slime: Slime, watcher: None) -> None:
    lines = slime("plugins", "list", "--load").out.splitlines()
    assert lines[0] == " 1  slime-core 0.1.0  API 1"
    found = next(number for number, line in enumerate(lines) if "slime-watcher 1.0  API 1" in line)
    assert lines[found + 1].split() == ["hooks", "slime_run_end"]
    assert any(line.split()[:2] == ["group_filter", "nonzero_std_with_fallback"] for line in lines)


def test_a_broken_one_is_shown_with_its_reason(slime: Slime, install_plugin: Install) -> None:
    install_plugin("slime-bad", {"slime_bad.py": "1/0"}, entry_points={"bad": "slime_bad"})
    shown = slime.ok("plugins", "list", "--role", "loss")
    assert "slime-bad 1.0  failed" in shown.out
    assert "ZeroDivisionError" in shown.out
    row = rows(slime, "--load")["slime-bad"]
    assert row["state"] == "failed"
