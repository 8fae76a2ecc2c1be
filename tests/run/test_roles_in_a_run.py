"""Every role, filled by a plugin of our own, in a real run; each test reads what that role did to it."""

import sys
from itertools import pairwise
from typing import Any

import pytest

from slime_core.roles import SPECS
from slime_core.telemetry import MetricsLog, strip_timing

CommandResult = Any
Everything = Any
SAMPLES = 4
"""Of a group: two drawn, each fanned out into two."""


def test_every_role_is_driven_by_a_test_here() -> None:
    tests = set(vars(sys.modules[__name__]))
    others = {"transport", "check"}  # tests/strangers and tests/doctor have them
    assert {f"test_role_{role}" for role in SPECS.keys() - others} <= tests


def test_role_data_source(trained: CommandResult, resumed: CommandResult) -> None:
    assert [(each["count"], each["first"]) for each in trained.of("data_source")] == [(4, 0), (4, 4), (4, 8), (4, 12)]
    assert resumed.of("data_source")[0]["first"] == 16
    assert trained.ledger[0]["id"] == "sums:e0:r0:d0"


def test_role_generator(trained: CommandResult) -> None:
    samples = trained.samples("rollout_000000")
    assert len(samples) == 8 * SAMPLES  # dropped groups are kept too, with their reasons
    evaluated = trained.samples("eval_000002")
    by_set = [each["source"] for each in evaluated]
    assert (by_set.count("as_trained"), by_set.count("own")) == (2 * 2, 2 * 3)  # fanned out, and its own generator
    assert max(each["response_length"] for each in evaluated if each["source"] == "own") <= 2


def test_role_reward(trained: CommandResult) -> None:
    for row in (row.metrics for row in trained.rows if "rollout/step" in row.metrics):
        alone, ranked = row["rollout/reward/wrapped"], row["rollout/group_reward/ranked"]
        assert alone > 0
        assert row["rollout/reward/wrapped/letters"] > 0
        # Over all samples, dropped groups included; raw_reward is over kept groups alone.
        assert ranked == 1.5
    evaluated = next(row.metrics for row in trained.rows if "eval/own" in row.metrics)
    assert 0 <= evaluated["eval/own"] <= 1  # digits alone
    assert evaluated["eval/as_trained"] >= 0.125  # and a quarter of the mean rank
    assert "eval/own-pass@2" in evaluated


def test_role_group_reward(trained: CommandResult) -> None:
    notes = trained.of("group_reward")
    assert [each["turns"] for each in notes if not each["evaluation"]] == [[0, 1, 0, 1]] * 16
    assert [each["turns"] for each in notes if each["evaluation"]] == [[0, 1]] * 4
    for rewards in trained.of("double")[0]["rewards"]:
        parts = [reward - 0.25 * place for place, reward in enumerate(rewards)]
        assert all(0 <= part <= 1 for part in parts)


def test_role_group_filter(trained: CommandResult) -> None:
    assert [row.metrics["rollout/dynamic_filter/drop_third"] for row in rollouts(trained)] == [2.0, 3.0]


def test_role_sample_filter(trained: CommandResult) -> None:
    first, second = trained.of("sample_filter")[:2]
    assert (first["of"], set(map(tuple, first["removed"]))) == (0, {()})
    assert (second["of"], set(map(tuple, second["removed"]))) == (1, {(0,)})
    assert set(map(tuple, trained.of("buffer")[0]["removed"])) == {(0, 1)}
    for row in rollouts(trained):
        assert row.metrics["rollout/sample_filter/first"] == row.metrics["rollout/sample_filter/second"] >= 4
    samples = trained.of("advantage")[0]["samples"]
    mask = trained.of("advantage")[0]["mask"]
    assert not any(bit for sample, bit in zip(samples, mask, strict=True) if sample % SAMPLES < 2)


def test_role_buffer(trained: CommandResult) -> None:
    assert [each["draws"] for each in trained.of("buffer")] == [[7, 6, 4, 3], [15, 13, 12, 10]]
    assert {weight for step in trained.of("trainer") for weight in step["weights"]} == {0.5}
    assert [len(each["scores"]) for each in trained.of("buffer_update")] == [4, 4]
    assert {each["id"] for each in trained.ledger if each.get("reason") == "crowded"} == {
        f"sums:e0:r{draw}:d{draw}" for draw in (0, 1, 9)
    }


def test_role_buffer_filter(trained: CommandResult) -> None:
    assert [(each["held"], each["want"], each["rollout_id"]) for each in trained.of("buffer_filter")] == [
        (6, 4, 0),
        (5, 4, 1),
    ]


def test_role_reward_shaper(trained: CommandResult) -> None:
    for raw, doubled, trained_on, row in zip(
        trained.of("double"), trained.of("plus_one"), trained.of("advantage"), rollouts(trained), strict=True
    ):
        assert doubled["rewards"] == [[2 * each for each in group] for group in raw["rewards"]]
        shaped = [each + 1 for group in doubled["rewards"] for each in group]
        assert trained_on["rewards"] == pytest.approx(shaped)
        assert row.metrics["rollout/shaped_reward"] == pytest.approx(sum(shaped) / len(shaped))
        assert row.metrics["rollout/raw_reward"] < row.metrics["rollout/shaped_reward"]


def test_role_batch_transform(trained: CommandResult) -> None:
    for kind in ("advantage", "loss"):
        for told in trained.of(kind):
            assert len(told["places"]) == len(told["samples"]) == len(told["mask"])
            for (sample, place), (following, then) in pairwise(zip(told["samples"], told["places"], strict=True)):
                assert then == (place + 1 if following == sample else 0)
            assert not any(mask for mask, place in zip(told["mask"], told["places"], strict=True) if place == 0)
    assert trained.of("advantage")[0]["turns"] == [0, 1] * 8
    # Only the second of the drawn samples is left to train on, in both of its turns.
    assert trained.of("loss")[0]["turns"] == [0, 1] * 4
    for told, step in zip(trained.of("advantage"), trained.of("trainer"), strict=True):
        assert step["step_tokens"] == sum(told["mask"])


def test_role_advantage(trained: CommandResult) -> None:
    for told, scores in zip(trained.of("advantage"), trained.of("buffer_update"), strict=True):
        assert told["pid"] != scores["pid"]  # on the rank
        assert max(scores["scores"].values()) <= max(told["rewards"]) + 1e-6
        assert min(scores["scores"].values()) >= 1


def test_role_loss(trained: CommandResult) -> None:
    for row in rollouts(trained):
        assert row.metrics["train/own_loss"] > 0
        assert row.metrics["train/loss"] == pytest.approx(row.metrics["train/own_loss"] / 2, rel=1e-5)
    assert all(each["difference"] == 0.0 for each in trained.of("loss"))  # the correction answers for the sampler


def test_role_correction(trained: CommandResult) -> None:
    assert {each["grad"] for each in trained.of("correction")} == {False}
    assert [row.metrics["train/halved"] for row in rollouts(trained)] == [1.0, 1.0]


def test_role_engine(trained: CommandResult) -> None:
    [engine] = trained.of("engine")
    assert (engine["number"], engine["count"], engine["serves"]) == (0, 1, "")


def test_role_trainer(trained: CommandResult, resumed: CommandResult) -> None:
    assert [each["rollout_id"] for each in trained.of("trainer")] == [0, 1]
    assert [each["rollout_id"] for each in resumed.of("trainer")] == [2]
    assert all(each["own_experts"] == len(each["weights"]) > 0 for each in trained.of("trainer"))


def test_role_launcher(trained: CommandResult) -> None:
    assert sorted((each["group"], each["size"]) for each in trained.of("launcher")) == [("engine", 1), ("trainer", 1)]


def test_role_tracker(trained: CommandResult) -> None:
    rows = trained.of("tracker")
    assert [each["step"] for each in rows] == [row.step for row in trained.rows]
    assert [each["names"] for each in rows] == [sorted(row.metrics) for row in trained.rows]
    assert len(trained.of("tracker_closed")) == 1


@pytest.mark.long
def test_stopped_and_resumed_the_run_is_the_same(
    everything: Everything, trained: CommandResult, resumed: CommandResult
) -> None:
    whole = everything.slime("train", "run.toml", "--num-rollout", 3, "--save", "runs/whole")
    assert whole.code == 0, whole.output
    root = everything.root / "runs"
    names = ["ledger.jsonl", *(f"samples/rollout_{number:06d}.parquet" for number in range(3))]
    names += [f"checkpoints/rollout_000003/{name}" for name in ("hf/model.safetensors", "optim/adamw.safetensors")]
    for name in names:
        assert (root / "whole" / name).read_bytes() == (root / "all" / name).read_bytes(), name
    assert [strip_timing(row) for row in MetricsLog.read(root / "whole" / "metrics.jsonl")] == [
        strip_timing(row) for row in resumed.rows
    ]


def rollouts(told: CommandResult) -> list[Any]:
    """The metrics rows of the first two rollouts."""
    return [row for row in told.rows if "rollout/step" in row.metrics][:2]
