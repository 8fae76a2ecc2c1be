"""Flags of choices: by name, by prefix, and those of installed software, which depend on where the software is."""

import pytest

from tests.conftest import Project, Slime
from tests.tables import table

MINE = """
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from slime_core import RewardSpec, Score, Settings, hookimpl
from slime_core.roles import InstalledSettings

SLIME_API = "1"


class Old(Settings, validate_default=False):
    depth: int = Field(None, description="How deep.")
    fold: bool = Field(None, description="Fold cases.")
    names: list[Annotated[str, BeforeValidator(str)]] = Field(None, description="Who.")


class New(Old):
    deeper: int = Field(None, description="How much deeper.")


class Judge(Settings):
    place: str = "old"
    passed_on: dict[str, JsonValue] = {}


class Easy(Settings):
    tolerance: float = Field(0.5, ge=0.0, description="How far it may be off.")
    modes: list[str] = Field(["plain"], description="How it is read.")
    lower: bool = Field(True, description="Lower its letters.")


def model(section):
    return New if section.get("place") == "new" else Old


def build(settings, setup):
    async def reward(sample, ctx):
        return Score(1.0)

    return reward


@hookimpl
def slime_rewards():
    installed = InstalledSettings("passed_on", model)
    yield RewardSpec("judge", build, Judge, "Judges", flat_prefix="judge_", installed=installed)
    yield RewardSpec("easy", build, Easy, "Easy", flat_keys=("tolerance", "modes", "lower"))
"""


@pytest.fixture
def mine(project: Project) -> Project:
    (project.root / "judging.py").write_text(MINE)
    project.write_run(plugins={"modules": ["./judging.py"]}, reward={"use": "judge"})
    return project


def settings(slime: Slime, *arguments: str) -> object:
    ran = slime.ok("plan", "run.toml", "--json", *arguments)
    return next(row["settings"] for row in ran.json()["choices"] if row["role"] == "reward")


def refusal(slime: Slime, *arguments: str) -> str:
    refusal = slime.refused("plan", "run.toml", *arguments)
    return " ".join(refusal.split())


@table(
    "reward, flags, expected",
    [
        ("judge", "", {"place": "old", "passed_on": {}}),
        ("judge", "--judge-depth=2 --judge-fold", {"place": "old", "passed_on": {"depth": 2, "fold": True}}),
        (
            "judge",
            "--no-judge-fold --judge-names a --judge-names 7",
            {"place": "old", "passed_on": {"fold": False, "names": ["a", "7"]}},
        ),
        ("judge", "--judge-place new --judge-deeper 3", {"place": "new", "passed_on": {"deeper": 3}}),
        ("judge", "--reward.judge.place new --judge-deeper 3", {"place": "new", "passed_on": {"deeper": 3}}),
        ("easy", "--tolerance 0.1 --tolerance=0.25", {"tolerance": 0.25, "modes": ["plain"], "lower": True}),
        ("easy", "--no-lower --modes a --modes b", {"tolerance": 0.5, "modes": ["a", "b"], "lower": False}),
        ("easy", '--modes ["a"] --lower false', {"tolerance": 0.5, "modes": ["a"], "lower": False}),
    ],
)
def test_flags_are_those_of_the_choice_and_its_software(
    mine: Project, slime: Slime, reward: str, flags: str, expected: dict[str, object]
) -> None:
    assert settings(slime, "--reward", reward, *flags.split()) == expected


def test_help_shows_the_flags_of_choices(mine: Project, slime: Slime) -> None:
    shown = slime("train", "--plugin", "./judging.py", "--help", "reward").out
    section = " ".join(shown.partition("Settings of choices, reward:")[2].split())
    assert "--tolerance X How far it may be off. (easy) [0 or more; default: 0.5]" in section
    assert "--[no-]lower Lower its letters. (easy)" in section
    assert "--judge-KEY VALUE every setting of judge, `slime plugins show ./judging.py`" in section


def test_a_run_file_has_them_in_a_table_or_flat_and_a_flag_wins(mine: Project, slime: Slime) -> None:
    modules = {"modules": ["./judging.py"]}
    mine.write_run(plugins=modules, reward={"use": "judge", "judge": {"place": "new", "passed_on": {"deeper": "4"}}})
    assert settings(slime) == {"place": "new", "passed_on": {"deeper": 4}}
    assert settings(slime, "--judge-deeper", "5", "--judge-depth", "1") == {
        "place": "new",
        "passed_on": {"deeper": 5, "depth": 1},
    }
    mine.write_run(plugins=modules, reward={"use": "judge"}, judge_place="new", judge_deeper=6)
    assert settings(slime, "--judge-depth", "1") == {"place": "new", "passed_on": {"deeper": 6, "depth": 1}}


def test_what_the_software_has_not_is_refused_with_the_nearest_name(mine: Project, slime: Slime) -> None:
    message = "unknown setting reward.judge.passed_on.dept. Did you mean 'depth'?"
    assert message in refusal(slime, "--judge-dept", "2")
    assert "Did you mean 'place'?" in refusal(slime, "--judge-plase", "new")
    assert "unknown setting reward.judge.passed_on.deeper." in refusal(slime, "--judge-deeper", "2")
    assert "reward.judge.passed_on.depth = 'x': input should be a valid integer" in refusal(slime, "--judge-depth", "x")
    table = {"use": "judge", "judge": {"passed_on": {"dept": 1}}}
    mine.write_run(plugins={"modules": ["./judging.py"]}, reward=table)
    assert (
        "unknown setting reward.judge.passed_on.dept. Did you mean 'depth'? [reward.judge.passed_on] has 3 keys, "
        "`slime plugins show reward/judge` lists them."
    ) in refusal(slime)


def test_they_are_listed_and_have_no_effect_on_what_is_not_chosen(mine: Project, slime: Slime) -> None:
    shown = slime("plugins", "show", "reward/judge", "--plugin", "./judging.py").out
    assert "passed_on.fold: bool = null" in shown
    assert "Fold cases." in shown
    mine.write_run(plugins={"modules": ["./judging.py"]})
    assert "judge_depth has no effect here: it is a setting of reward 'judge'" in refusal(slime, "--judge-depth", "2")


WITH_A_TABLE = MINE.replace(
    "passed_on: dict[str, JsonValue] = {}", "passed_on: dict[str, JsonValue] = {}\n    beside: dict = {}"
).replace("installed=installed)", 'installed=installed, prefixed={"beside_": "beside"})')


def test_a_table_may_have_a_prefix_of_its_own(mine: Project, slime: Slime) -> None:
    (mine.root / "judging.py").write_text(WITH_A_TABLE)
    shown = settings(slime, "--beside-depth", "3", "--no-beside-fold", "--judge-depth", "1")
    assert shown == {"place": "old", "passed_on": {"depth": 1}, "beside": {"depth": 3, "fold": False}}
