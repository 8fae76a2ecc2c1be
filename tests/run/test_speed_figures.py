"""What a run says of its own speed, and the same run where engine and ranks give memory up and take it back."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard, list_shards
from tests.conftest import Project, Slime


def test_waiting_tokens_and_operations_are_those_of_each_rollout(project: Project, slime: Slime) -> None:
    """A forward has two operations a weight and token, and a backward pass twice as many (Kaplan et al. 2020, §2.1)."""
    project.write_run(num_rollout=2, save_interval=1)
    slime.ok("train", "run.toml")
    rows = [row.metrics for row in MetricsLog.read(project.run / "metrics.jsonl") if "rollout/step" in row.metrics]
    saved = max((project.run / "checkpoints").iterdir()) / "hf"
    config = json.loads((saved / "config.json").read_text())
    weights = load_file(saved / "model.safetensors")
    in_layers = sum(value.size for name, value in weights.items() if ".layers." in name and value.ndim == 2)
    queries = config["num_hidden_layers"] * weights["model.layers.0.self_attn.q_proj.weight"].shape[0]
    assert len(rows) == 2
    for metrics, path in zip(rows, list_shards(project.run / "samples"), strict=True):
        groups = Shard(path).groups().kept
        samples = [(each.prompt_length, each.response_length) for group in groups for each in group.samples]
        seconds = metrics["perf/actor_train_time"]
        assert 0.0 < seconds <= metrics["perf/train_time"] < metrics["perf/step_time"]
        waited = (metrics["perf/rollout_time"] + metrics["perf/update_weights_time"]) / metrics["perf/step_time"]
        assert metrics["perf/wait_time_ratio"] == pytest.approx(waited, abs=1e-6)
        tokens = sum(map(sum, samples))
        assert metrics["perf/actor_train_tok_per_s"] == pytest.approx(tokens / seconds)
        of_weights = 2 * in_layers * tokens
        # Scores and their sum over values: each token with half of those of its sequence, on average.
        of_attention = sum(4 * queries * sum(lengths) ** 2 / 2 for lengths in samples)
        of_head = sum(2 * weights["model.embed_tokens.weight"].size * response for _, response in samples)
        forward = of_weights + of_attention + of_head
        assert metrics["perf/actor_train_tflops"] == pytest.approx(3 * forward / seconds / 1e12)

    slime.ok("train", "run.toml", "--save", "runs/together", "--colocate")
    apart, together = (learnt(project.root / "runs" / name) for name in ("run", "together"))
    assert apart == together, "every sample and weight of a colocated run, in every bit"


def learnt(run: Path) -> tuple[list[dict[str, float]], bytes]:
    """The metrics but times and plugins' calls, and the weights of the last checkpoint."""
    rows = [row.metrics for row in MetricsLog.read(run / "metrics.jsonl")]
    metrics = [{key: value for key, value in row.items() if not key.startswith(("perf/", "plugin/"))} for row in rows]
    return metrics, (run / "checkpoints" / "rollout_000002" / "hf" / "model.safetensors").read_bytes()
