"""`slime train` on a user's own prompts, from the run file to what lies in the run folder."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from slime_core.run import newest_checkpoint
from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard
from tests.conftest import Project, Slime


def metrics_of(run: Path) -> list[dict[str, float]]:
    return [dict(row.metrics) for row in MetricsLog.read(run / "metrics.jsonl")]


def same_weights(left: Path, right: Path) -> bool:
    one, other = load_file(left / "model.safetensors"), load_file(right / "model.safetensors")
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def test_a_run_file_and_prompts_make_a_trained_model_in_hf_format(project: Project, slime: Slime) -> None:
    ran = slime.ok("train", "run.toml")
    assert str(project.run.relative_to(project.root) / "report" / "report.md") in ran.out

    from transformers import AutoModelForCausalLM, AutoTokenizer

    newest = newest_checkpoint(project.run / "checkpoints", pytest.fail)
    assert newest is not None
    assert newest.rollout_id == 2
    model = AutoModelForCausalLM.from_pretrained(newest.path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(newest.path / "hf")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 1+1?"}], add_generation_prompt=True, return_tensors="pt"
    )
    assert model.generate(**prompt, max_new_tokens=2).shape[1] > prompt["input_ids"].shape[1]
    assert not same_weights(newest.path / "hf", project.model)

    rows = metrics_of(project.run)
    assert len(rows) == 2
    for name in ("rollout/raw_reward", "rollout/response_len/mean", "rollout/truncated_ratio"):
        assert name in rows[0]
    for name in ("train/loss", "train/grad_norm", "train/lr-pg_0", "train/pg_clipfrac", "train/entropy_loss"):
        assert name in rows[0], sorted(rows[0])
    assert rows[0]["train/lr-pg_0"] == 1e-3
    assert {"perf/step_time", "perf/rollout_time", "perf/train_time", "perf/tokens_per_sec"} <= rows[0].keys()
    assert (project.run / "report" / "reward.png").stat().st_size > 0
    assert "What is" in str(next(Shard(project.run / "samples" / "rollout_000000.parquet").rows()).prompt)


def test_a_finished_run_says_so_and_starts_nothing(project: Project, slime: Slime) -> None:
    assert slime("train", "run.toml", "--num-rollout", 1).code == 0
    logs = {path.name: path.stat().st_size for path in (project.run / "logs").iterdir()}
    before = (project.run / "metrics.jsonl").read_bytes()
    for log in (project.run / "logs").iterdir():
        log.unlink()
    again = slime.ok("train", "run.toml", "--num-rollout", 1)
    assert "runs/run is done: 1 of 1 rollouts" in again.out
    assert "slime resume runs/run --num-rollout" in again.out
    assert logs
    assert not list((project.run / "logs").iterdir())
    assert (project.run / "metrics.jsonl").read_bytes() == before
