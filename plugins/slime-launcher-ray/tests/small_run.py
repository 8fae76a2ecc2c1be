"""A run file of a small run, and the files that it needs."""

import json
from pathlib import Path

from slime_local.demo.tasks import problems
from slime_local.demo.tiny import write_tiny_model

REWARD = '''
from slime_core import RewardContext, Sample, Score


def digits(sample: Sample, ctx: RewardContext) -> Score:
    """Share of digits in the response."""
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''
RUN = """
hf_checkpoint = "{root}/model"
seed = 5
prompt_data = "{root}/train.jsonl"
input_key = "question"
apply_chat_template = true
rollout_batch_size = 4
n_samples_per_prompt = 4
num_rollout = 2
rollout_max_response_len = 8
lr = 1e-3
save_interval = 1

[reward]
use = {{"{root}/reward.py:digits" = 1.0}}

[engine.local]
workers = 2

[trainer.local]
ranks = 2
"""


def small_run(root: Path) -> Path:
    """Write a run with two ranks, an engine with two workers, and two rollouts."""
    write_tiny_model(directory=root / "model", task="chain", seed=0)
    (root / "reward.py").write_text(REWARD)
    rows = [{"question": each.question} for each in problems("chain", 0, 24, "train")]
    (root / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (root / "run.toml").write_text(RUN.format(root=root))
    return root / "run.toml"
