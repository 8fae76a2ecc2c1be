"""A mixture of experts in whole runs: Megatron trains the experts that the server's routers chose."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from real_server_engines import MOE
from servers import PYTHON, needs_routers, needs_servers
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]
APART = "train/train_rollout_logprob_abs_diff"
LAYERS, EXPERTS = 4, 16
RUN = Path(__file__).with_name("replay_on_a_server.toml").read_text("utf-8")


def write_model(folder: Path) -> None:
    """A model with weights so large that other experts change the next token."""
    write_tiny_model(folder)
    torch.manual_seed(0)
    changes = {"num_hidden_layers": LAYERS, "num_experts": EXPERTS, "initializer_range": 0.2}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**MOE.to_dict(), **changes})).save_pretrained(folder)


def trained(folder: Path, name: str, *flags: str) -> list[dict[str, float]]:
    """The metrics of each rollout of a run."""
    command = [sys.executable, "-m", "slime_core", "train", str(folder / "run.toml"), "--save", str(folder / name)]
    ran = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = (folder / name / "metrics.jsonl").read_text("utf-8").splitlines()
    return [metrics for line in lines if APART in (metrics := json.loads(line)["metrics"])]


def test_routing_replay_trains_the_served_experts(tmp_path: Path) -> None:
    needs_servers()
    write_model(tmp_path / "model")
    rows = [{"question": f"t{number} t{number + 1}"} for number in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "run.toml").write_text(RUN.format(folder=tmp_path, python=PYTHON, routers=needs_routers()), "utf-8")

    exact = trained(tmp_path, "exact")
    assert len(exact) == 3
    assert max(row[APART] for row in exact) < 1e-6
    assert max(row[f"{APART}_max"] for row in exact) < 1e-5

    # A server in bf16 sometimes chooses other experts than a trainer in fp32.
    with_replay = trained(tmp_path, "with", "--sglang-dtype", "bfloat16")
    same_samples = ("--load-debug-rollout-data", str(tmp_path / "with"), "--no-use-rollout-routing-replay")
    without = trained(tmp_path, "without", *same_samples)
    difference, difference_without = (sum(row[APART] for row in rows) for rows in (with_replay, without))
    assert 3e-3 < difference < 0.9 * difference_without
