"""`slime doctor`: every check is run and answered for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_testing.doctor import core_checks
from tests.conftest import Install, Slime

CHECKS = """

from slime_core import hookimpl
from slime_core.roles import CheckSpec, Finding, Health

SLIME_API = "1"


def broken():
    raise RuntimeError("no idea")


def wrong():
    return "fine"


def misspelt():
    return Finding("ok", "fine")


def warns():
    return Finding(Health.WARNING, "there is no flag", "touch flag")


@hookimpl
def slime_checks():
    for function in ({names}):
        yield CheckSpec.from_function(function.__name__, function, summary="A check")
"""


@pytest.fixture
def add_checks(install_plugin: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a plugin with these checks."""
    monkeypatch.chdir(tmp_path)

    def add(*names: str) -> None:
        source = CHECKS.format(names=", ".join(names) + ",")
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
    add_checks("broken", "wrong", "misspelt", "warns")
    code, rows = found(slime)
    assert code == 1
    assert rows["slime-checks/broken"]["text"] == "the check failed: it raised RuntimeError: no idea"
    assert "slime_checks.py:" in rows["slime-checks/broken"]["advice"]
    assert rows["slime-checks/wrong"]["text"] == "the check failed: it returned a str; expected a Finding"
    assert "Finding(health='ok', text='fine'" in rows["slime-checks/misspelt"]["text"]
    assert rows["slime-checks/warns"]["health"] == "warning"
