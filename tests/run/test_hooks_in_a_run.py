"""Every run hook and rank hook, in a real run: its events are what happened."""

from typing import Any

import pytest

from slime_core.hookspecs import HOOK_OF_EVENT, HOOK_OF_RANK_EVENT
from tests.conftest import Install, Project, Slime, workers

CommandResult = Any
Everything = Any

RAISES_ON_ONE_RANK = """
from slime_core.hookspecs import hookimpl

SLIME_API = "1"


@hookimpl
def slime_before_train_step(event):
    if event.rank == 1:
        raise KeyError("no such layer")
"""
TRAINED: dict[str, list[tuple[object, ...]]] = {
    "run_start rollout_id num_rollout": [(0, 2)],
    "rollout_start rollout_id weight_version": [(0, 0), (1, 1)],
    "samples_done samples_count evaluation": [(4, True), (6, True), *[(16, False)] * 4, (4, True), (6, True)],
    "groups_done kept_count dropped_count": [(3, 1), (3, 1), (2, 2), (3, 1)],
    "rollout_end kept_count dropped_count": [(6, 2), (5, 3)],
    "train_step_end rollout_id step": [(0, 0), (1, 1)],
    "weights_published version": [(0,), (1,), (2,)],
    "checkpoint_saved path rollout_id": [(f"rollout_{number:06d}", number) for number in range(3)],
    "checkpoint_loaded path": [],
    "eval_end rollout_id samples_count": [(0, 2), (2, 2)],
    "run_end rollout_id": [(2,)],
    "run_failed error": [],
    "train_init rank world_size optimizer": [(0, 1, "FlatAdamW")],
    "before_log_prob rollout_id weights rank": [(0, "actor", 0), (1, "actor", 0)],
    "before_train_step rollout_id step": [(0, 0), (1, 1)],
}
"""By hook and attributes of its events: their values in a run of two rollouts."""
RESUMED: dict[str, list[tuple[object, ...]]] = {
    "run_start rollout_id num_rollout": [(2, 3)],
    "train_step_end rollout_id step": [(2, 2)],
    "checkpoint_loaded path rollout_id": [("rollout_000002", 2)],
}


def differing(told: CommandResult, expected: dict[str, list[tuple[object, ...]]]) -> list[str]:
    found = []
    for line, values in expected.items():
        hook, *names = line.split()
        events = [tuple(each[name] for name in names) for each in told.of(f"slime_{hook}")]
        if events != values:
            found.append(f"{line}: {events}")
    return found


def test_every_hook_gets_the_events_of_a_run(trained: CommandResult, resumed: CommandResult) -> None:
    hooks = {f"slime_{line.split()[0]}" for line in TRAINED}
    assert hooks == {*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values()}
    assert differing(trained, TRAINED) == []
    assert differing(resumed, RESUMED) == []
    assert all(each["metrics_count"] > 10 for each in trained.of("slime_rollout_end"))
    assert trained.of("slime_train_init")[0]["pid"] == trained.of("trainer")[0]["pid"], "in the rank's process"
    order = [each["kind"] for each in trained.notes if each["kind"] in ("slime_before_log_prob", "loss")]
    assert order[0] == "slime_before_log_prob"


def test_events_come_in_the_order_of_a_rollout(resumed: CommandResult) -> None:
    looked_at = {*HOOK_OF_EVENT.values()} - {"slime_samples_done", "slime_groups_done"}  # which come several times
    order = [each["kind"].removeprefix("slime_") for each in resumed.notes if each["kind"] in looked_at]
    assert order == [
        *("run_start", "checkpoint_loaded", "weights_published", "rollout_start", "rollout_end", "train_step_end"),
        *("weights_published", "eval_end", "checkpoint_saved", "run_end"),
    ]


def test_a_run_that_fails_ends_with_its_error(everything: Everything, resumed: CommandResult) -> None:
    (everything.root / "fail").touch()
    try:
        told = everything.slime("train", "run.toml", "--save", "runs/failing", "--eval-interval", 3)
    finally:
        (everything.root / "fail").unlink()
    assert told.code == 1
    [failed] = told.of("slime_run_failed")
    assert "samples failed" in failed["error"]
    assert "the judge is gone" in failed["error"]
    assert told.of("slime_run_end") == []


@pytest.mark.timeout(120)
def test_a_rank_hook_that_raises_on_one_rank_ends_the_run_on_all(
    project: Project, slime: Slime, install_plugin: Install
) -> None:
    install_plugin("slime-picky", {"slime_picky.py": RAISES_ON_ONE_RANK}, entry_points={"picky": "slime_picky"})
    refusal = slime.refused("train", "run.toml", "--trainer.local.ranks", 2)
    said = "rank hook slime_before_train_step of plugin slime-picky raised on rank 1: KeyError: 'no such layer'"
    assert said in refusal
    assert workers() == []
