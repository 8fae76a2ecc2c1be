"""A value read from the environment is in no file and no output of a run, whatever the plugins do with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.conftest import Project, Ran, Slime
from tests.tables import table

VALUE = "tok-2b7e151628ae"

LOUD = '''
import logging
import sys

from pydantic import SecretStr

from slime_core import RewardSpec, Score, Settings, Unscored, hookimpl
from slime_core.roles import Drop, GroupFilterSpec, Keep, LossOutput, LossSpec

SLIME_API = "1"


class Judge(Settings):
    key: str
    masked: SecretStr


class Loud(Settings):
    key: str
    fails: str = "never"


def judge(settings, setup):
    async def score(sample, ctx):
        """Everything that a careless author does with a key."""
        print("asking with", settings.key)
        print("asking with", settings, file=sys.stderr)
        logging.getLogger("judge").warning("asking with %s", settings.key)
        if sample.index == 1 and sample.group_index % 2:
            raise RuntimeError(f"401 for {settings.key}")
        if sample.index == 1:
            return Unscored(f"denied:{settings.key}")
        return Score(len(sample.response) / 10)

    return score


def picky(settings, setup):
    def keep(group, ctx):
        return Drop(f"denied_{settings.key}") if group.id.draw == 0 else Keep()

    return keep


def loss(settings, setup):
    print("loss with", settings.key, settings)

    def per_token(batch):
        if settings.fails == "called":
            raise RuntimeError(f"no loss with {settings.key}")
        return LossOutput(-batch.advantages_T * batch.log_probs_T)

    return per_token


def grade(settings, setup):
    def score(sample, ctx):
        print("grading with", settings.key)
        if sample.index == 2 or settings.fails == "always":
            raise RuntimeError(f"402 for {settings.key}")
        return Score(0.0)

    return score


@hookimpl
def slime_rewards():
    yield RewardSpec("judge", judge, Judge)
    yield RewardSpec("grade", grade, Loud)


@hookimpl
def slime_group_filters():
    yield GroupFilterSpec("picky", picky, Loud)


@hookimpl
def slime_losses():
    yield LossSpec("loud", loss, Loud)


@hookimpl
def slime_rollout_end(event):
    raise RuntimeError("watching with " + __import__("os").environ["JUDGE_KEY"])
'''


@pytest.fixture
def loud(project: Project, install_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Project:
    """A run file that uses a plugin with secrets for a reward, a filter and a loss."""
    install_plugin("slime-loud", {"loud.py": LOUD}, entry_points={"loud": "loud"})
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    write_run(project)
    return project


def write_run(project: Project, *, grade: str = "sometimes", loss: str = "never", **changes: object) -> None:
    project.write_run(
        reward={
            "use": ["judge", "grade"],
            "judge": {"key": "$env:JUDGE_KEY", "masked": "$env:JUDGE_KEY"},
            "grade": {"key": "$env:JUDGE_KEY", "fails": grade},
        },
        group_filter={"use": "picky", "picky": {"key": "$env:JUDGE_KEY"}},
        loss={"use": "loud", "loud": {"key": "$env:JUDGE_KEY", "fails": loss}},
        **changes,
    )


def leaks(project: Project, *ran: Ran) -> list[str]:
    """Where the value is found: in files of the project and in outputs."""
    files = [path for path in project.root.rglob("*") if path.is_file() and "loud" not in path.name]
    found = [str(path) for path in files if VALUE.encode() in path.read_bytes()]
    found += [str(path) for path in (project.run / "samples").glob("*") if VALUE in everything(path)]
    return [*found, *(text for each in ran for text in (each.out, each.err) if VALUE in text)]


def everything(folder: Path) -> str:
    """The text of a shard, or of all logs and shards in a folder."""
    files = [*folder.rglob("*")] if folder.is_dir() else [folder]
    logs = [path.read_text(errors="replace") for path in files if path.suffix in (".jsonl", ".log")]
    shards = [path for path in files if path.suffix == ".parquet"]
    return "".join([*logs, *(str(parquet.read_table(path).to_pylist()) for path in shards)])


def test_a_run_keeps_the_value_to_itself(loud: Project, slime: Slime) -> None:
    write_run(loud, max_error_rate=1.0, num_rollout=1)
    ran = slime.ok("train", "run.toml")
    assert leaks(loud, ran) == []
    assert "asking with $env:JUDGE_KEY" in ran.out
    assert "drop_denied_$env:JUDGE_KEY" in (loud.run / "metrics.jsonl").read_text()
    assert "loss with $env:JUDGE_KEY" in everything(loud.run / "logs")
    assert 'key = "$env:JUDGE_KEY"' in (loud.run / "run.toml").read_text()
    continued = slime.ok("resume", loud.run, "--num-rollout", 2)
    assert leaks(loud, continued) == []


@pytest.mark.parametrize("how", [{"grade": "always"}, {"loss": "called"}])
def test_a_run_that_ends_with_an_error_keeps_it_too(loud: Project, slime: Slime, how: dict[str, Any]) -> None:
    write_run(loud, **how)
    ran = slime("train", "run.toml")
    assert ran.code in (1, 2), ran.out
    assert "$env:JUDGE_KEY" in ran.err
    assert leaks(loud, ran) == []


@table("flags", [[], ["--json"]])
def test_a_plan_shows_the_variable(loud: Project, slime: Slime, flags: list[str]) -> None:
    ran = slime.ok("plan", "run.toml", *flags)
    assert ran.out.count("$env:JUDGE_KEY") == 5
    assert leaks(loud, ran) == []


def test_a_variable_that_is_not_set_is_named_with_its_setting(
    loud: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY")
    refusal = slime.refused("train", "run.toml")
    assert "reward.judge.key = '$env:JUDGE_KEY': the environment variable JUDGE_KEY is not set" in refusal
    assert "loss.loud.key" in refusal
    assert not loud.run.exists()


def test_a_secret_or_a_value_of_the_wrong_type_is_refused_and_not_repeated(loud: Project, slime: Slime) -> None:
    refusal = slime.refused("plan", "run.toml", "--reward.judge.masked", "written-out-4711")
    assert 'reward.judge.masked: a secret is read from the environment, write masked = "$env:MASKED"' in refusal
    assert "4711" not in refusal
    ran = slime("plan", "run.toml", "--engine.local.workers", "$env:JUDGE_KEY")
    assert ran.code == 2
    assert "engine.local.workers = '$env:JUDGE_KEY': input should be a valid integer" in ran.err
    assert leaks(loud, ran) == []
