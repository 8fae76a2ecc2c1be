"""Settings that a choice passes on to installed software: keys and flags that depend on where the software is."""

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


def model(section):
    if section.get("place") == "gone":
        raise OSError("there is no such place")
    return New if section.get("place") == "new" else Old


def build(settings, setup):
    async def reward(sample, ctx):
        return Score(1.0)

    return reward


@hookimpl
def slime_rewards():
    installed = InstalledSettings("passed_on", model)
    yield RewardSpec("judge", build, Judge, "Judges", flat_prefix="judge_", installed=installed)
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
    "flags, place, passed_on",
    [
        ("", "old", {}),
        ("--judge-depth 2", "old", {"depth": 2}),
        ("--judge-depth=2 --judge-fold", "old", {"depth": 2, "fold": True}),
        ("--no-judge-fold --judge-names a --judge-names 7", "old", {"fold": False, "names": ["a", "7"]}),
        ("--judge-place new --judge-deeper 3", "new", {"deeper": 3}),
        ("--reward.judge.place new --judge-deeper 3", "new", {"deeper": 3}),
    ],
)
def test_flags_are_those_of_the_software_that_the_run_names(
    mine: Project, slime: Slime, flags: str, place: str, passed_on: dict[str, object]
) -> None:
    assert settings(slime, *flags.split()) == {"place": place, "passed_on": passed_on}


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
    said = "unknown setting reward.judge.passed_on.dept. Did you mean 'depth'?"
    assert said in refusal(slime, "--judge-dept", "2")
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
    help_text = " ".join(slime("train", "run.toml", "--help", "reward").out.split())
    assert "--judge-KEY VALUE every setting of judge, `slime plugins show ./judging.py`" in help_text
    mine.write_run(plugins={"modules": ["./judging.py"]})
    assert "judge_depth has no effect here: it is a setting of reward 'judge'" in refusal(slime, "--judge-depth", "2")


def test_software_that_does_not_tell_is_blamed_on_who_asks(mine: Project, slime: Slime) -> None:
    said = (
        "plugin ./judging.py: reward 'judge': making the settings of passed_on raised OSError: there is no such place"
    )
    assert said in refusal(slime, "--judge-place", "gone", "--judge-depth", "2")


WITH_A_TABLE = (
    MINE.replace("import InstalledSettings", "import InstalledSettings, PrefixedTable")
    .replace("passed_on: dict[str, JsonValue] = {}", "passed_on: dict[str, JsonValue] = {}\n    beside: dict = {}")
    .replace("installed=installed)", 'installed=installed, prefixed=(PrefixedTable("beside_", "beside", model),))')
)


def test_a_table_may_have_a_prefix_of_its_own(mine: Project, slime: Slime) -> None:
    (mine.root / "judging.py").write_text(WITH_A_TABLE)
    told = settings(slime, "--beside-depth", "3", "--no-beside-fold", "--judge-depth", "1")
    assert told == {"place": "old", "passed_on": {"depth": 1}, "beside": {"depth": 3, "fold": False}}
