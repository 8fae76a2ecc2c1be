"""Flags of what is installed: typed like the core's own, shown in help, and made late where their settings are."""

import sys
from collections.abc import Iterator

import pytest

from tests.conftest import Project, Slime
from tests.tables import table

MINE = """
from pydantic import Field

from slime_core import RewardSpec, Score, Settings, hookimpl

SLIME_API = "1"


class Easy(Settings):
    tolerance: float = Field(0.5, ge=0.0, description="How far it may be off.")
    modes: list[str] = Field(["plain"], description="How it is read.")
    fold: bool = Field(True, description="Fold cases.")


def made_late():
    import flagged_heavy

    return flagged_heavy.Strict


def build(settings, setup):
    async def reward(sample, ctx):
        return Score(1.0)

    return reward


@hookimpl
def slime_rewards():
    yield RewardSpec("easy", build, Easy, "Easy", flat_keys=("tolerance", "modes", "fold"))
    yield RewardSpec("strict", build, made_late, "Strict", flat_keys=lambda: ("severity",), flat_prefix="strict_")
"""
HEAVY = """
from slime_core import Settings

class Strict(Settings):
    severity: int = 1
    depth: int = 1
    fold: bool = True
    names: list[str] = []
"""


@pytest.fixture
def mine(project: Project) -> Iterator[Project]:
    (project.root / "flagged.py").write_text(MINE)
    (project.root / "flagged_heavy.py").write_text(HEAVY)
    yield project
    sys.modules.pop("flagged_heavy", None)


def settings(slime: Slime, *arguments: str) -> dict[str, object]:
    ran = slime.ok("plan", "run.toml", "--json", *arguments)
    return {row["choice"]: row["settings"] for row in ran.json()["choices"] if row["role"] == "reward"}


@table(
    "flags, expected",
    [
        ("--tolerance 0.25", {"tolerance": 0.25, "modes": ["plain"], "fold": True}),
        ("--tolerance=0.25 --no-fold", {"tolerance": 0.25, "modes": ["plain"], "fold": False}),
        ("--modes a --modes b --fold false", {"tolerance": 0.5, "modes": ["a", "b"], "fold": False}),
        ("--tolerance 0.1 --tolerance=0.25", {"tolerance": 0.25, "modes": ["plain"], "fold": True}),
        ('--modes ["a"]', {"tolerance": 0.5, "modes": ["a"], "fold": True}),
    ],
)
def test_flags_of_a_module_are_typed_as_the_cores_are(
    mine: Project, slime: Slime, flags: str, expected: dict[str, object]
) -> None:
    assert settings(slime, "--plugin", "./flagged.py", "--reward", "easy", *flags.split()) == {"easy": expected}


def test_a_module_that_the_run_file_names_has_its_flags_too(mine: Project, slime: Slime) -> None:
    mine.write_run(plugins={"modules": ["./flagged.py"]}, reward={"use": "easy"}, tolerance=0.75)
    assert settings(slime, "--no-fold") == {"easy": {"tolerance": 0.75, "modes": ["plain"], "fold": False}}
    assert settings(slime, "--tolerance", "0.1")["easy"] == {"tolerance": 0.1, "modes": ["plain"], "fold": True}


def test_flags_of_late_settings_are_known_when_they_are_typed(mine: Project, slime: Slime) -> None:
    typed = "--severity 2 --strict-depth 3 --no-strict-fold --strict-names a --strict-names b"
    given = settings(slime, "--plugin", "./flagged.py", "--reward", "strict", *typed.split())
    assert given == {"strict": {"severity": 2, "depth": 3, "fold": False, "names": ["a", "b"]}}


def test_help_shows_what_is_installed_by_role_and_makes_nothing_late(mine: Project, slime: Slime) -> None:
    shown = slime("train", "--plugin", "./flagged.py", "--help", "reward").out
    section = " ".join(shown.partition("Settings of choices, reward:")[2].split())
    assert "--tolerance X How far it may be off. (easy) [0 or more; default: 0.5]" in section
    assert "--[no-]fold Fold cases. (easy)" in section
    assert "--severity VALUE (strict)" in section
    assert "--strict-KEY VALUE every setting of strict, `slime plugins show ./flagged.py`" in section
    assert "flagged_heavy" not in sys.modules
