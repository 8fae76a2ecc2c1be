"""`slime plugins list`: what is installed and what it offers."""

from collections.abc import Callable
from typing import Any

import pytest

Slime = Callable[..., Any]
WATCHER = """
from slime_core.hookspecs import hookimpl

SLIME_API = "1"


@hookimpl
def slime_run_end(event):
    pass
"""


def test_every_choice_of_the_core_and_of_plugins_is_listed(slime: Slime) -> None:
    ran = slime("plugins", "list", "--json")
    assert ran.code == 0, ran.err
    found = {(row["role"], row["choice"]): row for row in ran.json()["choices"]}
    assert found["engine", "slime-core/local"]["summary"]
    math = found["reward", "slime-reward-math/math"]
    assert math["version"] == "0.1.0"
    assert "slime_reward_math" in math["origin"]
    assert ran.json()["broken"] == []


def test_one_role_alone(slime: Slime) -> None:
    ran = slime("plugins", "list", "--role", "reward", "--json")
    assert {row["role"] for row in ran.json()["choices"]} == {"reward"}


def test_the_table_groups_by_plugin_and_shows_watchers(
    slime: Slime, install_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    install_plugin("slime-watcher", {"slime_watcher.py": WATCHER}, entry_points={"watcher": "slime_watcher"})
    lines = [line.strip() for line in slime("plugins", "list").out.splitlines()]
    watcher = next(number for number, line in enumerate(lines) if line.startswith("slime-watcher "))
    assert lines[watcher + 1].split() == ["run", "hooks", "slime_run_end"]
    assert any(line.split()[:2] == ["group_filter", "nonzero_std_with_fallback"] for line in lines)
