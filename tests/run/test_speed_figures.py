"""What a run says of its own speed, and the same run where engine and ranks give memory up and take it back."""

import json

import pytest
from safetensors.numpy import load_file

from slime_view.samples.shard import Shard, list_shards
from tests.conftest import Project, Slime
from tests.run.reading import metrics, training_metrics, weights


def test_waiting_tokens_and_operations_are_those_of_each_rollout(project: Project, slime: Slime) -> None:
    """A forward has two operations a weight and token, and a backward pass twice as many (Kaplan et al. 2020, §2.1)."""
    project.write_run(num_rollout=2, save_interval=1)
    slime.ok("train", "run.toml")
    rows = metrics(project.run)
    saved = max((project.run / "checkpoints").iterdir()) / "hf"
    config = json.loads((saved / "config.json").read_text())
    tensors = load_file(saved / "model.safetensors")
    in_layers = sum(value.size for name, value in tensors.items() if ".layers." in name and value.ndim == 2)
    queries = config["num_hidden_layers"] * tensors["model.layers.0.self_attn.q_proj.weight"].shape[0]
    assert len(rows) == 2
    for row, path in zip(rows, list_shards(project.run / "samples"), strict=True):
        groups = Shard(path).groups().kept
        samples = [(each.prompt_length, each.response_length) for group in groups for each in group.samples]
        seconds = row["perf/actor_train_time"]
        assert 0.0 < seconds <= row["perf/train_time"] < row["perf/step_time"]
        waited = (row["perf/rollout_time"] + row["perf/update_weights_time"]) / row["perf/step_time"]
        assert row["perf/wait_time_ratio"] == pytest.approx(waited, abs=1e-6)
        tokens = sum(map(sum, samples))
        assert row["perf/actor_train_tok_per_s"] == pytest.approx(tokens / seconds)
        of_weights = 2 * in_layers * tokens
        # Scores and their sum over values: each token with half of those of its sequence, on average.
        of_attention = sum(4 * queries * sum(lengths) ** 2 / 2 for lengths in samples)
        of_head = sum(2 * tensors["model.embed_tokens.weight"].size * response for _, response in samples)
        forward = of_weights + of_attention + of_head
        assert row["perf/actor_train_tflops"] == pytest.approx(3 * forward / seconds / 1e12)

    slime.ok("train", "run.toml", "--save", "runs/together", "--colocate")
    together = project.root / "runs" / "together"
    assert training_metrics(together) == training_metrics(project.run)
    assert weights(together) == weights(project.run), "every weight of a colocated run, in every bit"
