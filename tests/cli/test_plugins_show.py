"""`slime plugins show`: everything about a plugin or a choice, before a run."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Install, Slime
from tests.tables import table

JUDGE = """
from typing import Literal

from pydantic import Field, SecretStr

from slime_core import RewardSpec, Score, Settings, hookimpl
from slime_core.roles import Isolation

SLIME_API = "1"


class JudgeSettings(Settings):
    url: str = Field(description="Where the judge listens.")
    mode: Literal["fast", "slow"] = Field("fast", description="How hard it thinks.")
    retries: int | None = Field(None, ge=0, description="Times that it is asked again.")
    key: SecretStr | None = Field(None, description="Its key.")


async def judge(sample, ctx):
    return Score(1.0)


def prove(sample, ctx):
    return Score(1.0)


@hookimpl
def slime_rewards():
    yield RewardSpec("judge", lambda settings, setup: judge, JudgeSettings, "Asks a judge", isolation=Isolation.PROCESS)
    yield RewardSpec.from_function("prove", prove, summary="Proves it")


@hookimpl
async def slime_rollout_end(event):
    pass
"""
FIRST = """
from slime_core import hookimpl

SLIME_API = "1"


@hookimpl(tryfirst=True)
def slime_rollout_end(event):
    pass
"""


@pytest.fixture
def judge(install_plugin: Install) -> None:
    install_plugin("slime-reward-judge", {"judging.py": JUDGE}, entry_points={"reward-judge": "judging"})


def show(slime: Slime, *arguments: str) -> Any:  # noqa: ANN401  # JSON
    ran = slime.ok("plugins", "show", *arguments, "--json")
    assert ran.json()["schema_version"] == 1
    return ran.json()


@table("name", ["slime-reward-judge", "slime_reward_judge", "reward-judge", "judging.py"])
def test_a_plugin_is_found_by_distribution_entry_point_or_file(
    slime: Slime, judge: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path / "site")
    assert [each["summary"] for each in show(slime, name)["choices"]] == ["Asks a judge", "Proves it"]


def test_a_plugin_with_place_version_api_and_requirements(slime: Slime, judge: None, tmp_path: Path) -> None:
    plugin = show(slime, "slime-reward-judge")["plugin"]
    assert (plugin["version"], plugin["api"], plugin["state"]) == ("1.0", "1", "loaded")
    assert plugin["file"] == str(tmp_path / "site" / "judging.py")
    assert plugin["requires"] == ["slime-core<0.2,>=0.1"] or plugin["requires"] == ["slime-core>=0.1,<0.2"]
    assert plugin["order"] > 1


@table("name", ["judge", "reward/judge", "slime-reward-judge/judge", "reward/slime-reward-judge/judge"])
def test_a_choice_with_settings_isolation_and_place(slime: Slime, judge: None, name: str) -> None:
    value = show(slime, name)
    assert value["plugin"] is None
    (choice,) = value["choices"]
    assert choice["choice"] == "slime-reward-judge/judge"
    assert choice["origin"].endswith("judging.py:29")
    assert choice["isolation"] == "process, 30 s, 1024 MiB"
    assert (choice["stability"], choice["added"]) == ("stable", "0.1")
    assert [tuple(row.values()) for row in choice["settings"]] == [
        ("url", "str", True, None, "Where the judge listens."),
        ("mode", "Literal['fast', 'slow']", False, "fast", "How hard it thinks."),
        ("retries", "int | None", False, None, "Times that it is asked again."),
        ("key", "SecretStr | None", False, None, "Its key."),
    ]


def test_hooks_are_shown_in_the_order_of_calls(slime: Slime, judge: None, install_plugin: Install) -> None:
    install_plugin("slime-z-first", {"z_first.py": FIRST}, entry_points={"z-first": "z_first"})
    (hook,) = show(slime, "slime-reward-judge")["hooks"]
    assert hook["hook"] == "slime_rollout_end"
    assert hook["order"] == ["slime-z-first", "slime-reward-judge"]
    assert hook["position"] == 2
    assert hook["origin"].endswith("judging.py:33")
    assert (hook["stability"], hook["added"]) == ("stable", "0.1")
    shown = slime("plugins", "show", "slime-reward-judge").out
    assert "called      2 of 2: slime-z-first, slime-reward-judge" in shown
    assert "setting     url: str required\n              Where the judge listens.\n" in shown
    assert "setting     mode: Literal['fast', 'slow'] = \"fast\"\n" in shown


def test_code_of_the_project_is_shown_with_its_role(
    slime: Slime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("async def half(sample, ctx):\n    ...\n")
    (choice,) = show(slime, "reward/./my.py:half")["choices"]
    assert choice["origin"] == f"{tmp_path / 'my.py'}:1"
    assert "write ROLE/./my.py:half, as in reward/./my.py:half" in slime.refused("plugins", "show", "./my.py:half")


@table(
    "name, meant",
    [("slime-rewrad-judge", "slime-reward-judge"), ("jugde", "judge"), ("reward/jugde", "judge"), ("fifi", "fifo")],
)
def test_an_unknown_name_names_the_nearest(slime: Slime, judge: None, name: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in slime.refused("plugins", "show", name)
