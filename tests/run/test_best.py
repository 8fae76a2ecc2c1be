"""The best model by an evaluation is kept whole, under one name, through kills and resumes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from slime_core.errors import ConfigError, RunFolderError
from slime_core.run import list_checkpoints
from slime_core.run.saving import Best
from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime
from tests.tables import table


def offer(best: Best, rollout_id: int, reward: float | None, content: str = "") -> bool:
    async def save(directory: Path) -> None:
        (directory / "hf").mkdir()
        (directory / "hf" / "model").write_text(content or str(rollout_id))
        (directory / "optim").mkdir()
        (directory / "optim" / "moments").write_text("large")

    metrics = {"eval/other": 9.0} | ({} if reward is None else {"eval/held": reward})
    return asyncio.run(best.offer(rollout_id, metrics, save))


def test_a_better_model_takes_the_place_and_one_as_good_does_not(tmp_path: Path) -> None:
    best = Best(tmp_path / "best", "held")
    outcomes = [offer(best, *each) for each in ((0, None), (1, 0.25), (2, 0.25), (3, 0.5), (4, 0.4))]
    assert outcomes == [False, True, False, True, False]
    assert {each.name for each in (tmp_path / "best").iterdir()} == {"hf", "best.json"}
    assert (tmp_path / "best" / "hf" / "model").read_text() == "3"
    assert json.loads((tmp_path / "best" / "best.json").read_text()) == {
        "rollout_id": 3,
        "dataset": "held",
        "reward": 0.5,
    }
    assert [each.name for each in tmp_path.iterdir()] == ["best"]
    again = Best(tmp_path / "best", "held")
    assert not offer(again, 9, 0.5)
    assert again.text == f"best so far: held 0.500 after 3 rollouts, in {tmp_path / 'best'}"


def test_a_kill_at_any_point_leaves_one_of_the_two(tmp_path: Path) -> None:
    root = tmp_path / "best"
    offer(Best(root, "held"), 1, 0.25)
    (tmp_path / ".best.tmp").mkdir()  # killed while the next one was written
    (tmp_path / ".best.tmp" / "hf").mkdir()
    assert offer(Best(root, "held"), 2, 0.5)
    root.rename(tmp_path / "best.old")  # killed between the two renames
    assert not offer(Best(root, "held"), 3, 0.4)
    assert (root / "hf" / "model").read_text() == "2"


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    best = Best(tmp_path / "file" / "best", "held")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot write the best model to .*file"):
        offer(best, 1, 0.5)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "best.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"best\.json cannot be read .*remove its folder"):
        Best(tmp_path / "best", "held")


def test_a_run_keeps_its_best_model(project: Project, slime: Slime) -> None:
    project.write_run(eval_prompt_data={"held": "prompts.jsonl"}, eval_interval=1)
    ran = slime.ok("train", "run.toml", "--num-rollout", 2, "--save-best", "held", "--save-keep", 1, "--no-progress")
    rows = [row for row in MetricsLog.read(project.run / "metrics.jsonl") if "eval/held" in row.metrics]
    rewards = [row.metrics["eval/held"] for row in rows]
    record = json.loads((project.run / "best" / "best.json").read_text())
    assert record["reward"] == max(rewards)
    assert record["rollout_id"] == rows[rewards.index(max(rewards))].rollout_id
    assert f"best so far: held {max(rewards):.3f} after {record['rollout_id']} rollouts" in ran.out
    assert (project.run / "best" / "hf" / "model.safetensors").exists()
    assert len(list_checkpoints(project.run / "checkpoints")) == 1


@table(
    "changes, message",
    [
        (
            {"save_best": "hold"},
            "save_best = 'hold' names no evaluation set. Did you mean 'held'? eval_prompt_data has: held",
        ),
        ({"save_best": "held", "debug_rollout_only": True}, "save_best has no effect here: with debug_rollout_only"),
    ],
)
def test_a_best_that_cannot_be_is_refused(
    project: Project, slime: Slime, changes: dict[str, Any], message: str
) -> None:
    project.write_run(eval_prompt_data={"held": "prompts.jsonl"}, eval_interval=1, **changes)
    assert message in slime.refused("train", "run.toml")


def test_a_folder_of_a_user_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"save_best = 'heldout': .*'notes.txt' in it"):
        Best(tmp_path / "best", "heldout")
