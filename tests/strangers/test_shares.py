"""A stranger's trainer whose ranks share a replica of the model: its contract, and a run, two shares of two ranks."""

import json
from pathlib import Path

import pytest

from slime_core.telemetry import MetricsLog
from slime_testing import write_tiny_model
from tests.strangers.conftest import HERE, Site

RUN = """
hf_checkpoint = "model"
save = "run"
prompt_data = "rows.jsonl"
input_key = "prompt"
rollout_batch_size = 6
n_samples_per_prompt = 4
num_rollout = 2
num_steps_per_rollout = 2
rollout_max_response_len = 6
lr = 1e-2
save_interval = 1

[trainer]
use = "halves"

[trainer.halves]
replicas = 2
pieces = 2

[engine.local]
workers = 1

[correction]
use = "tis"

[reward]
use = "./reward.py:early"
"""
REWARD = '''
from slime_core import Score


def early(sample, ctx):
    """The share of words from the first half of the vocabulary."""
    words = [word for word in sample.response.split() if word.startswith("t")]
    return Score(sum(int(word[1:]) < 32 for word in words) / max(1, len(words)))
'''


@pytest.mark.long
def test_its_contract_holds_with_ranks_in_processes(site: Site, tmp_path: Path) -> None:
    said = site.pytest(HERE / "halves" / "tests" / "test_halves.py", tmp_path)
    assert " passed" in said
    assert "skipped" not in said


def test_a_run_trains_on_two_shares_of_two_ranks_each(site: Site, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    (tmp_path / "run.toml").write_text(RUN, "utf-8")
    (tmp_path / "reward.py").write_text(REWARD, "utf-8")
    rows = [json.dumps({"prompt": f"t{number} t{number + 1}"}) for number in range(3, 40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), "utf-8")

    site.run(tmp_path, "-m", "slime_core", "train", "run.toml", "--no-progress")

    rows = [dict(row.metrics) for row in MetricsLog.read(tmp_path / "run" / "metrics.jsonl")]
    assert len(rows) == 2
    for row in rows:
        assert row["train/grad_norm"] > 0.0
        assert row["train/ppo_kl"] != 0.0  # the second step's ratio is to the policy before the rollout
        assert row["train/tis_abs"] < 1e-4  # what the engine was sent is what the pieces make together
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").glob("trainer-*.log"))
    assert logs == [f"trainer-{rank}.log" for rank in range(4)]
