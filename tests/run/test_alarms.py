"""Alarms: each is raised by a run that has what it is about, once, and by no run that goes well."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from slime_core.config import AlarmArgs, RolloutArgs
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_view.alarms import Alarm, Alarms, read_alarms
from tests.conftest import Project, Slime
from tests.tables import table

REAL = sorted(Path(__file__).with_name("real_metrics").glob("*.jsonl"))
ROLLOUT = RolloutArgs(rollout_batch_size=64, n_samples_per_prompt=8)
WELL: Mapping[str, Callable[[float], float]] = {
    "rollout/raw_reward": lambda part: 0.2 + 0.6 * part,
    "rollout/response_len/mean": lambda part: 100 + 300 * part,
    "rollout/truncated_ratio": lambda part: 0.02,
    "rollout/zero_std/count_0.0": lambda part: 20.0,
    "rollout/zero_std/count_1.0": lambda part: 20.0 * part,
    "train/entropy_loss": lambda part: 0.5 - 0.48 * part,
    "train/kl_loss": lambda part: 0.2 * part,
    "train/ppo_kl": lambda part: 1e-4,
    "train/train_rollout_logprob_abs_diff": lambda part: 0.01 + 0.01 * part,
    "rollout/errors/generator_timeout": lambda part: 1.0,
}
"""A run that learns: by the part of it that is over."""
BAD: Mapping[str, Mapping[str, Callable[[float], float]]] = {
    "entropy": {"rollout/raw_reward": lambda part: 0.3 - 0.1 * part},
    "length": {"rollout/truncated_ratio": lambda part: 0.6 * part},
    "no_variance": {"rollout/zero_std/count_1.0": lambda part: 44.0 * part, "rollout/raw_reward": lambda part: part},
    "kl": {"train/kl_loss": lambda part: 0.01 * 2 ** (12 * part)},
    "mismatch": {"train/train_rollout_logprob_abs_diff": lambda part: 0.01 + 0.2 * part},
    "errors": {"rollout/errors/reward_KeyError": lambda part: 40.0 * part},
    "hacking": {"eval/held": lambda part: 0.5 + part if part < 0.3 else 0.9 - part},
}
"""What is other in a run that has it."""
ROLLOUTS, DEFAULT = 60, AlarmArgs()


def rows_of(changes: Mapping[str, Callable[[float], float]], rollouts: int = ROLLOUTS) -> list[MetricsRow]:
    """A made-up run with an evaluation before every tenth rollout."""
    metrics = {**WELL, "eval/held": WELL["rollout/raw_reward"], **changes}
    rows = []
    for number in range(rollouts):
        part = number / rollouts
        if number % 10 == 0:
            rows.append(MetricsRow(number, number, 0.0, {"eval/held": metrics["eval/held"](part)}))
        values = {name: value(part) for name, value in metrics.items() if not name.startswith("eval/")}
        rows.append(MetricsRow(number, number, 0.0, values))
    return rows


def seen(rows: Iterable[MetricsRow], settings: AlarmArgs = DEFAULT, rollout: RolloutArgs = ROLLOUT) -> list[Alarm]:
    alarms = Alarms(settings, rollout)
    return [each for row in rows for each in alarms.check(row)]


@table("name", BAD)
def test_a_run_that_has_it_raises_that_alarm_once_unless_it_is_off(name: str) -> None:
    (alarm,) = seen(rows_of(BAD[name]))
    assert alarm.name == name
    assert str(alarm).startswith(f"alarm {name}, rollout {alarm.rollout_id}: ")
    assert seen(rows_of(BAD[name]), AlarmArgs.model_validate({f"alarm_{name}": 0})) == []


@table("rows", [rows_of({}), *map(MetricsLog.read, REAL)])
def test_a_run_that_learns_raises_none(rows: list[MetricsRow]) -> None:
    assert len(rows) > 40
    assert seen(rows) == []


def test_what_was_over_is_said_again() -> None:
    failing = {"rollout/errors/reward_KeyError": lambda part: 40.0 if (part * ROLLOUTS) % 30 > 15 else 0.0}
    assert [each.name for each in seen(rows_of(failing))] == ["errors", "errors"]


def test_a_worse_evaluation_alone_is_not_hacking() -> None:
    changes = {
        **BAD["hacking"],
        "rollout/raw_reward": lambda part: 0.5 - 0.2 * part,
        "train/entropy_loss": lambda part: 0.5,
    }
    assert seen(rows_of(changes)) == []
    once = {"eval/held": lambda part: 0.1 if part == 0.5 else 0.5 + part}
    assert seen(rows_of(once)) == []


ZEROS = {"rollout/zero_std/count_0.0": 64.0, "rollout/raw_reward": 0.0}


@table(
    "size, changes, expected",
    [
        pytest.param(8, {}, True, id="all 0"),
        pytest.param(8, {"rollout/raw_reward": 0.03}, True, id="all 0.25, whose name is rounded"),
        pytest.param(8, {"rollout/zero_std/count_0.0": 63.0}, False, id="one group differs"),
        pytest.param(8, {"rollout/zero_std/count_1.0": 3.0}, False, id="groups of 0 and groups of 1"),
        pytest.param(1, {}, True, id="groups of one sample, all 0"),
        pytest.param(1, {"rollout/raw_reward": 0.012}, False, id="groups of one sample, about 0"),
    ],
)
def test_a_first_rollout_of_one_reward_says_so_at_once(size: int, changes: dict[str, float], expected: bool) -> None:
    rollout = RolloutArgs(rollout_batch_size=64, n_samples_per_prompt=size)
    rows = [MetricsRow(number, number, 0.0, ZEROS | changes) for number in range(2)]
    assert [each.name for each in seen(rows, rollout=rollout)] == ["same_reward"] * expected
    assert not seen([MetricsRow(0, 0, 0.0, ZEROS | {"rollout/zero_std/count_0.0": 3.0}), rows[1]])


ALIKE = """
from slime_core import Score


async def alike(sample, ctx):
    return Score(0.5)
"""


@pytest.fixture
def alike(project: Project) -> Project:
    """A run of twelve rollouts whose reward is always the same."""
    (project.root / "alike.py").write_text(ALIKE)
    project.write_run(
        reward={"use": "./alike.py:alike"},
        num_rollout=12,
        rollout_batch_size=2,
        n_samples_per_prompt=2,
        save_interval=20,
    )
    return project


def test_a_run_says_it_once_ends_where_that_is_asked_for_and_a_resume_knows_what_was_said(
    alike: Project, slime: Slime
) -> None:
    ran = slime.ok("train", "run.toml", "--no-progress", "--stop-on-alarms", "no_variance")
    said = [
        line
        for line in (ran.out + ran.err).splitlines()
        if "alarm no_variance, rollout 9: in 100% of the groups" in line
    ]
    assert len(said) == 1
    first, alarm = read_alarms(alike.run)
    assert str(alarm) in said[0]
    assert (first.name, first.rollout_id) == ("same_reward", 0)
    assert str(first) in ran.out + ran.err
    assert "alarm no_variance ends the run after this step" in ran.out + ran.err
    assert [row.rollout_id for row in MetricsLog.read(alike.run / "metrics.jsonl")] == list(range(10))
    again = slime.ok("resume", alike.run, "--no-progress")
    assert "alarm no_variance" not in again.out + again.err
    assert len(MetricsLog.read(alike.run / "metrics.jsonl")) == 12
    assert [each.rollout_id for each in read_alarms(alike.run)] == [0, 9]


def test_a_name_that_no_alarm_has_is_refused_before_anything_starts(alike: Project, slime: Slime) -> None:
    assert "entropy" in slime.refused("train", "run.toml", "--stop-on-alarms", "entrophy")
    assert "alarm-length" in slime.refused("train", "run.toml", "--alarm-lenght", 3)
    refusal = slime.refused("train", "run.toml", "--stop-on-alarms", "hacking", "--alarm-hacking", 0.5)
    assert "alarm_hacking has no effect here: give eval_prompt_data" in refusal
    assert "stop_on_alarms lists hacking, which needs evaluations" in refusal
