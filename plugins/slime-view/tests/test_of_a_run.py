"""A run that trains, keeps what its ranks train on, and is resumed: what its folder shows of it."""

import json
from pathlib import Path

import pytest

from slime_core.cli import run_cli
from slime_view.index import Query
from slime_view.runs import OpenRun

pytest.importorskip("slime_local")

RUN = """
hf_checkpoint = "model"
save = "runs/first"
prompt_data = "prompts.jsonl"
input_key = "prompt"
label_key = "label"
lr = 1e-3
num_rollout = 2
save_interval = 1
rollout_batch_size = 2
num_steps_per_rollout = 2
n_samples_per_prompt = 4
rollout_max_response_len = 8
save_debug_train_data = "dump/{rollout_id}-{rank}.safetensors"

[reward]
use = "./rewards.py:even"

[correction]
use = "tis"

[engine.local]
workers = 1

[trainer.local]
ranks = 1
"""
REWARD = """
from slime_core import Score

async def even(sample, ctx):
    return Score(float(len(sample.response) % 2))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from slime_local.demo.tiny import write_tiny_model

    root = tmp_path_factory.mktemp("project")
    write_tiny_model(root / "model", task="chain", seed=0)
    (root / "run.toml").write_text(RUN)
    (root / "rewards.py").write_text(REWARD)
    rows = [{"prompt": f"What is {row}+3?", "label": "5"} for row in range(8)]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert run_cli(["train", "run.toml"]) == 0
        assert run_cli(["resume", "runs/first", "--num-rollout", "3"]) == 0
    return root / "runs" / "first"


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> OpenRun:
    monkeypatch.chdir(folder.parents[1])
    (found,) = OpenRun.all([folder])
    while found.refresh():
        pass
    return found


def test_the_resume_is_marked(run: OpenRun) -> None:
    state = run.state()
    assert (state["resumed"], state["rollout"], state["samples"], state["problem"]) == ([2], 2, 24, "")


def test_tokens_have_training_values(run: OpenRun) -> None:
    advantages, differences = [], []
    for place in run.index.find(Query()).places:
        sample = run.sample(place)
        tokens = sample["tokens"]
        assert str(sample["trained_in"]) == sample["record"]["weight_versions"][0]
        assert len(tokens["advantage"]) == sample["record"]["response_length"] == len(tokens["id"])
        differences.append(tokens.get("difference"))
        assert sum(count for _, count in tokens["pieces"]) == len(tokens["id"])
        advantages.append((sample["group"], sample["record"]["reward"], tokens["advantage"][0]))
    assert any(advantage for _, _, advantage in advantages)
    known = [each for each in differences if each is not None]  # of the second step
    assert 0 < len(known) <= len(differences) / 2
    assert all(abs(each) < 1e-3 for those in known for each in those)
    for group, reward, advantage in advantages:
        rewards = [other for name, other, _ in advantages if name == group]
        assert (advantage > 0) == (reward > sum(rewards) / len(rewards))


def test_a_group_is_found_in_the_file_of_its_rollout(run: OpenRun) -> None:
    name = run.sample(run.index.find(Query()).places[0])["group"]
    assert [each["index"] for each in run.group(name)] == [0, 1, 2, 3]
    assert [move["state"] for move in run.life(name)] == ["drawn", "finished", "buffered", "trained"]
