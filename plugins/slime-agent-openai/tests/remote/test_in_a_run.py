"""The whole way: a model that is trained through an agent in a runtime, by `slime train` in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cloud import Cloud

from slime_view.samples import Shard

pytest.importorskip("slime_local", reason="the run trains with slime-local")

RUN = """
hf_checkpoint = "model"
save = "run"
prompt_data = "rows.jsonl"
input_key = "question"
label_key = "gold"
num_rollout = 2
rollout_batch_size = 1
n_samples_per_prompt = 4
rollout_max_response_len = 48
reward = {use = "environment"}

[generator]
use = "agent_remote"

[generator.agent_remote]
"""


@pytest.fixture(scope="module")
def run(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one that made two steps of four samples each."""
    from slime_local.demo.tiny import write_tiny_model

    root = tmp_path_factory.mktemp("remote")
    write_tiny_model(root / "model", task="chain", seed=0)
    rows = [{"question": f"{number} + {number}", "gold": str(2 * number)} for number in range(8)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [f"{key} = {json.dumps(value)}" for key, value in cloud.settings(max_turn_tokens=12).items()]
    (root / "run.toml").write_text("\n".join([RUN, *settings, 'rollout = {turns = 2, graded = "by parity"}', ""]))
    argv = [sys.executable, "-m", "slime_core", "train", "run.toml"]
    done = subprocess.run(argv, cwd=root, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "run"


def test_what_the_agent_asked_is_trained_on_with_the_reward_of_its_result(run: Path) -> None:
    rows = [row.to_dict() for path in sorted((run / "samples").glob("rollout_*.parquet")) for row in Shard(path).rows()]
    assert len(rows) == 8
    assert {row["status"] for row in rows} <= {"completed", "truncated"}
    assert {row["reward"] for row in rows} <= {0.0, 1.0}
    assert all("More, 0" in row["response"] for row in rows)


def test_each_sample_had_a_session_of_its_own_that_was_stopped(run: Path, cloud: Cloud) -> None:
    invoked = {each["session"] for each in cloud.log("invoke")}
    assert len(invoked) == 8
    assert {each["session"] for each in cloud.log("stop")} == invoked
    payload = cloud.log("invoke")[0]["payload"]
    assert payload["prompt"] in {f"{number} + {number}" for number in range(8)}
    assert payload["_rollout"]["exp_id"] == "tests/math"


def test_the_trainer_saw_the_tokens_that_the_engine_sampled(run: Path) -> None:
    rows = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [row["rollout/agent_remote/turns/mean"] for row in rows] == [2.0, 2.0]
    assert all(row["rollout/agent_remote/tokens/mean"] > 2.0 for row in rows)
    assert all(row["train/train_rollout_logprob_abs_diff_max"] < 1e-3 for row in rows)
