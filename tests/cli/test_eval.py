"""`slime eval`: a run's newest checkpoint, or any model, on evaluation sets."""

import json

import pytest

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard
from tests.conftest import Project, Slime


@pytest.fixture
def sets(project: Project) -> list[str]:
    project.write_prompts("easy.jsonl", 3)
    project.write_prompts("hard.jsonl", 5)
    return ["--eval-prompt-data", "easy", "easy.jsonl", "--eval-prompt-data", "hard", "hard.jsonl"]


def test_a_run_evaluates_every_set_and_the_command_repeats_the_last_one(
    project: Project, slime: Slime, sets: list[str]
) -> None:
    flags = ["--eval-interval", 1, "--n-samples-per-eval-prompt", 4, "--num-rollout", 1]
    assert slime("train", "run.toml", *sets, *flags).code == 0
    before, _, after = (row.metrics for row in MetricsLog.read(project.run / "metrics.jsonl"))
    names = {f"eval/{name}{detail}" for name in ("easy", "hard") for detail in ("", "-pass@1", "-pass@2", "-pass@4")}
    assert names <= before.keys()
    assert names <= after.keys()
    files = sorted(path.name for path in (project.run / "samples").glob("eval_*"))
    assert files == ["eval_000000.parquet", "eval_000001.parquet"]
    assert (project.run / "report" / "transcripts.md").exists()

    ran = slime.ok("eval", "runs/run")
    found = json.loads((project.root / "runs" / "run-eval" / "rollout_000001" / "eval.json").read_text())
    assert found == {name: value for name, value in after.items() if name.startswith("eval/")}
    assert f"{found['eval/hard']:.4f}" in ran.out


def test_a_model_alone_is_evaluated(project: Project, slime: Slime, sets: list[str]) -> None:
    keys = "--input-key question --label-key answer --apply-chat-template --rollout-max-response-len 6 --save judged"
    ran = slime.ok("eval", "--hf-checkpoint", project.model, "--reward", "./rewards.py:digits", *keys.split(), *sets)
    assert f"evaluation of {project.model}: 8 samples" in ran.out
    rows = list(Shard(project.root / "judged" / "samples" / "eval_000000.parquet").rows())
    assert [row.source for row in rows] == ["easy"] * 3 + ["hard"] * 5
    assert 0.0 <= json.loads((project.root / "judged" / "eval.json").read_text())["eval/hard"] <= 1.0


def test_a_run_file_and_a_model_directory_are_evaluated_in_folders_of_their_own(
    project: Project, slime: Slime, sets: list[str]
) -> None:
    assert "--eval-prompt-data NAME PATH" in slime.refused("eval", "run.toml")
    slime.ok("eval", "run.toml", *sets)
    assert (project.root / f"{project.run.relative_to(project.root)}-eval" / "eval.json").exists()
    assert not (project.run / "eval.json").exists()
    keys = "--input-key question --label-key answer --apply-chat-template --rollout-max-response-len 6"
    slime.ok("eval", project.model, "--reward", "./rewards.py:digits", *keys.split(), *sets)
    assert (project.root / "runs" / f"{project.model.name}-eval" / "eval.json").exists()
