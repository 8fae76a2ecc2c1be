"""`slime reward try`: samples of a file are scored as in a run, and every row is accounted for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.sample import Json
from slime_testing import make_group
from tests.conftest import Install, Slime
from tests.tables import table

REWARDS = """
import time

from pydantic import Field

from slime_core import NotApplicable, RewardSpec, Score, Settings, Unscored, hookimpl
from slime_core.roles import GroupRewardSpec, Isolation

SLIME_API = "1"


class LengthSettings(Settings):
    per: float = Field(1.0, description="Characters of one point.")


class Length:
    def __init__(self, settings, setup):
        self.per = settings.per

    async def __call__(self, sample, ctx):
        return Score(len(sample.response) / self.per, {"letters": float(len(sample.response))})


async def picky(sample, ctx):
    match sample.response:
        case "raise":
            raise ValueError("no such luck")
        case "text":
            return "1.0"
        case "decline":
            return Unscored("no gold answer")
        case "other":
            return NotApplicable()
    return Score(1.0)


def sleepy(sample, ctx):
    time.sleep(60)


async def rank(samples, ctx):
    lengths = sorted(len(sample.response) for sample in samples)
    return [Score(float(lengths.index(len(sample.response)))) for sample in samples]


@hookimpl
def slime_rewards():
    yield RewardSpec("length", Length, LengthSettings, "Length of the response")
    yield RewardSpec.from_function("picky", picky)
    yield RewardSpec("sleepy", lambda settings, setup: sleepy, isolation=Isolation.PROCESS, timeout_s=0.3)


@hookimpl
def slime_group_rewards():
    yield GroupRewardSpec("rank", lambda settings, setup: rank, isolation=Isolation.LOOP)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install_plugin: Install) -> None:
    """A plugin with rewards, also for worker processes, and an empty working directory."""
    install_plugin("slime-tried", {"tried.py": REWARDS}, entry_points={"tried": "tried"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def rows(*values: Json, name: str = "rows.jsonl") -> Path:
    path = Path(name)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def responses(*texts: str) -> Path:
    return rows(*({"prompt": "?", "response": text, "label": "1"} for text in texts))


def report(slime: Slime, *arguments: object) -> Any:  # noqa: ANN401  # JSON
    ran = slime("reward", "try", *arguments, "--json")
    assert ran.code in (0, 1), ran.err
    return ran.json()


def test_scores_components_and_a_summary(slime: Slime) -> None:
    ran = slime.ok("reward", "try", "length", "--data", responses("ab", "abcd"))
    lines = ran.out.splitlines()
    assert lines[0].split() == ["1", "2.0000", "letters=2", "ab"]
    assert "2 of 2 rows scored" in lines
    assert "mean 3.0000, standard deviation 1.0000" in lines
    assert any(line.startswith("calls: p50 ") for line in lines)


def test_settings_of_the_reward_are_flags(slime: Slime) -> None:
    found = report(slime, "length", "--data", responses("ab"), "--reward.length.per", "4")
    assert found["rows"][0]["reward"] == 0.5
    found = report(slime, "slime-tried/length", "--data", responses("ab"), "--reward.slime-tried/length.per", "4")
    assert found["rows"][0]["reward"] == 0.5


@table(
    "flag, message",
    [
        ("--reward.length.pre=4", "Did you mean 'per'?"),
        ("--reward.picky.per=4", "--reward.picky.* has no effect here; write --reward.length.KEY VALUE"),
        ("--engine.local.workers=4", "--engine.local.* has no effect here"),
        ("--reward.length.per=many", "reward.length.per = 'many'"),
    ],
)
def test_settings_that_have_no_effect_or_no_sense_are_refused(slime: Slime, flag: str, message: str) -> None:
    assert message in slime.refused("reward", "try", "length", "--data", responses("ab"), flag)


def test_every_row_is_accounted_for(slime: Slime) -> None:
    path = responses("fine", "raise", "text", "decline", "other")
    ran = slime("reward", "try", "picky", "--data", path, "--json")
    assert ran.code == 1
    found = ran.json()
    assert (found["schema_version"], found["role"], found["choice"]) == (1, "reward", "slime-tried/picky")
    assert [(row["row"], row["where"]) for row in found["rows"]] == [(n, f"rows.jsonl:{n}") for n in range(1, 6)]
    outcomes = [(row["outcome"], row["reason"]) for row in found["rows"]]
    assert outcomes == [
        ("scored", ""),
        ("unscored", "ValueError"),
        ("unscored", "contract"),
        ("unscored", "no gold answer"),
        ("not_applicable", ""),
    ]
    summary = found["summary"]
    assert (summary["rows"], summary["scored"], summary["not_applicable"], summary["errors"]) == (5, 1, 1, 2)
    assert sum(summary["unscored"].values()) == 3


def test_an_error_shows_row_line_and_the_plugins_code_alone(slime: Slime) -> None:
    ran = slime("reward", "try", "picky", "--data", responses("fine", "raise"))
    assert ran.code == 1
    assert "rows.jsonl:2:" in ran.err
    assert "ValueError: no such luck" in ran.err
    assert "tried.py" in ran.err
    assert "trial.py" not in ran.err
    assert "calls that failed: 1 errors, 0 timeouts" in ran.out


def test_a_call_that_takes_too_long_is_given_up(slime: Slime) -> None:
    ran = slime("reward", "try", "sleepy", "--data", responses("a"), "--json")
    assert ran.code == 1
    found = ran.json()
    assert found["rows"][0]["reason"] == "timeout"
    assert found["summary"]["timeouts"] == 2  # a retryable failure gets a second chance, as in a run


def test_a_group_reward_sees_whole_groups(slime: Slime) -> None:
    texts = [("g1", "aa"), ("g2", "b"), ("g1", "aaa"), ("g1", "a"), ("g2", "bb")]
    path = rows(*({"response": text, "team": team} for team, text in texts))
    found = report(slime, "rank", "--data", path, "--group-key", "team")
    assert {row["row"]: row["reward"] for row in found["rows"]} == {1: 1.0, 3: 2.0, 4: 0.0, 2: 0.0, 5: 1.0}
    assert found["role"] == "group_reward"


@table(
    "arguments, message",
    [
        (("rank",), "'rank' is a group reward: add --group-key COLUMN"),
        (("length", "--group-key", "label"), "'length' is a reward: omit --group-key"),
        (("lenght",), "Did you mean 'length'?"),
        (("length", "--response-key", "output"), "rows.jsonl:1: no key 'output'; the row has prompt, response, label"),
        (("length", "--label-key", "gold"), "no key 'gold'"),
        (("length", "--response-key", "number"), "no key 'number'"),
    ],
)
def test_bad_input_is_named(slime: Slime, arguments: tuple[str, ...], message: str) -> None:
    assert message in slime.refused("reward", "try", *arguments, "--data", responses("a"))


def test_the_samples_of_a_run_are_scored_as_they_are(
    slime: Slime, tmp_path: Path, write_samples: Callable[..., None]
) -> None:
    write_samples(tmp_path / "samples", {0: [make_group(0), make_group(1)]})
    path = tmp_path / "samples" / "rollout_000000.parquet"
    count = 4
    found = report(slime, "length", "--data", path)
    assert found["summary"]["scored"] == count
    found = report(slime, "rank", "--data", path, "--group-key", "group")
    assert found["summary"]["scored"] == count
    found = report(slime, "length", "--data", f"{path}@[-3:3]")
    assert [row["where"].rpartition(", ")[2] for row in found["rows"]] == ["row 1", "row 2"]


def test_scored_rows_are_written(slime: Slime) -> None:
    path = rows({"response": "ab", "id": 7}, {"response": "abc", "id": 8})
    ran = slime("reward", "try", "length", "--data", path, "--out", "scored.jsonl")
    assert "written: scored.jsonl" in ran.out
    written = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [(row["id"], row["reward"], row["components"]) for row in written] == [
        (7, 2.0, {"letters": 2.0}),
        (8, 3.0, {"letters": 3.0}),
    ]
