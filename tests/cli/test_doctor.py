"""`slime doctor`: every check is run and answered for, and nothing is mended without consent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_testing.doctor import core_checks
from tests.conftest import Install, Slime

CHECKS = """
from pathlib import Path

from slime_core import hookimpl
from slime_core.roles import CheckSpec, Finding, Health

SLIME_API = "1"


def broken():
    raise RuntimeError("no idea")


def wrong():
    return "fine"


def mendable():
    flag = Path("flag")
    if flag.exists():
        return Finding(Health.OK, "the flag is there")
    return Finding(Health.{health}, "there is no flag", "touch flag", lambda: flag.touch() or "made the flag")


@hookimpl
def slime_checks():
    for function in ({names}):
        yield CheckSpec.from_function(function.__name__, function, summary="A check")
"""


@pytest.fixture
def add_checks(install_plugin: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a plugin with these checks."""
    monkeypatch.chdir(tmp_path)

    def add(*names: str, health: str = "ERROR") -> None:
        source = CHECKS.format(names=", ".join(names) + ",", health=health)
        install_plugin("slime-checks", {"slime_checks.py": source}, entry_points={"checks": "slime_checks"})

    return add


def found(slime: Slime, *options: str) -> tuple[int, dict[str, Any]]:
    ran = slime("doctor", "--json", *options)
    assert ran.json()["schema_version"] == 1
    return ran.code, {row["check"]: row for row in ran.json()["checks"]}


def test_the_cores_checks_are_all_run(slime: Slime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = slime.ok("doctor")
    for spec in core_checks():
        assert f"{spec.name}: " in ran.out
    assert "0 errors" in ran.out.splitlines()[-1]


def test_a_check_that_fails_itself_is_an_error_and_the_others_are_run(slime: Slime, add_checks: Install) -> None:
    add_checks("broken", "wrong", "mendable", health="WARNING")
    code, rows = found(slime)
    assert code == 1
    assert rows["slime-checks/broken"]["text"] == "the check itself raised RuntimeError: no idea"
    assert "slime_checks.py:" in rows["slime-checks/broken"]["advice"]
    assert rows["slime-checks/wrong"]["text"] == "the check itself returned a str; expected a Finding"
    assert rows["slime-checks/mendable"]["health"] == "warning"
    assert rows["slime-checks/mendable"]["fixable"] is True


@pytest.mark.parametrize(("answer", "code", "made"), [("y", 0, True), ("n", 1, False)])
def test_mending_asks_first_and_looks_again(
    slime: Slime, add_checks: Install, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, made: bool
) -> None:
    add_checks("mendable")
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: answer)
    ran = slime("doctor", "--fix")
    assert ran.code == code
    assert Path("flag").exists() is made
    assert ("made the flag" in ran.out) is made
