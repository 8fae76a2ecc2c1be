"""The critic: its values on both paths, its gradient, what it learns, and that it comes through a resume to the bit."""

import dataclasses
import math
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_rank import batches, flat

from slime_core.errors import NonFiniteError
from slime_core.roles import Choice, Critic, RankSetup, TrainBatch
from slime_local.model import GroupTokens, load_model
from slime_local.rank import LocalRank
from slime_train.estimators.ppo import PpoSettings
from tests.ranks import optim, rank_setup
from tests.tables import table

TinyHf = Callable[..., Path]
PPO = Choice("advantage", "ppo", "slime-core", PpoSettings(lambd=0.9))
GROUPS = [GroupTokens([5, 6, 7], [[8, 9], [8, 10, 11], [12]]), GroupTokens([5, 9], [[3, 4, 5, 6]])]
T = 10


def setup_of(tiny_model: Path, tmp_path: Path, *, only: int = 0, **keys: object) -> RankSetup:
    critic = Critic(tiny_model, optim(2e-3), value_clip=0.2, num_critic_only_steps=only)
    return dataclasses.replace(rank_setup(tiny_model, tmp_path, advantage=PPO, **keys), critic=critic)  # type: ignore[arg-type]


def batch_of(rollout_id: int = 0) -> TrainBatch:
    return dataclasses.replace(batches(1)[0], rollout_id=rollout_id)


@table("family", ["llama", "qwen3", "gpt2"])
def test_values_match_a_head_on_hugging_face_states(tiny_hf: TinyHf, family: str) -> None:
    from transformers import AutoModel

    directory = tiny_hf(family)
    model = load_model(directory)
    head = torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(0))
    found = model.values(GROUPS, head)
    assert not found.requires_grad
    hf = AutoModel.from_pretrained(directory).eval()
    expected = []
    for group in GROUPS:
        for response in group.responses:
            with torch.no_grad():
                states = hf(torch.tensor([[*group.prompt, *response]])).last_hidden_state[0]
            expected.append(states[len(group.prompt) - 1 : -1] @ head)
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-3, atol=1e-4)


@table("family", ["llama", "qwen3", "gpt2"])
def test_value_gradient_matches_finite_differences(tiny_hf: TinyHf, family: str) -> None:
    """Along random directions, of the decoder's weights and of the head."""
    model = load_model(tiny_hf(family))
    flat_N = torch.empty(model.numel)
    model.read_into(flat_N)
    draw = torch.Generator().manual_seed(1)
    head = torch.randn(model.hidden_size, generator=draw)
    mix_T = torch.randn(T, generator=draw)
    gradient, leaf = torch.zeros(model.numel), head.clone().requires_grad_()
    model.bind(flat_N)
    (model.values(GROUPS, leaf, grad=gradient) * mix_T).sum().backward()
    assert leaf.grad is not None
    for _ in range(3):
        way = torch.randn(model.numel, generator=draw)
        step = 1e-3 / float(way.norm())
        both = []
        for sign in (1.0, -1.0):
            model.bind(flat_N + sign * step * way)
            both.append(float((model.values(GROUPS, head).double() * mix_T).sum()))
        slope = (both[0] - both[1]) / (2 * step)
        assert float(gradient @ way) == pytest.approx(slope, rel=0.05, abs=0.02 * float(gradient.norm()))
    model.bind(flat_N)
    slopes = [float((model.values(GROUPS, unit) * mix_T).sum()) for unit in torch.eye(model.hidden_size)]
    assert leaf.grad.tolist() == pytest.approx(slopes, rel=1e-3, abs=1e-4)


def test_critic_starts_at_zero_and_learns(tiny_model: Path, tmp_path: Path) -> None:
    rank = LocalRank(0, 1, setup_of(tiny_model, tmp_path))
    found = [rank.train_step(batch_of(number)) for number in range(30)]
    first, last = found[0].scalars, found[-1].scalars
    assert first["values"] == 0.0
    assert last["critic-value_loss"] < 0.2 * first["critic-value_loss"]
    assert first["critic-value_clipfrac"] == 0.0
    assert first["critic-lr-pg_0"] == 2e-3
    assert first["lr-pg_0"] == 1e-3


def test_value_targets_are_fixed_in_a_rollout(tiny_model: Path, tmp_path: Path) -> None:
    rank = LocalRank(0, 1, setup_of(tiny_model, tmp_path))
    rank.train_step(batch_of(0))
    rollout = [dataclasses.replace(batch_of(1), step=step) for step in range(3)]
    rank.begin_rollout(rollout)
    results = [rank.train_step(batch) for batch in rollout]
    assert results[0].scores == results[1].scores == results[2].scores
    assert len({result.scalars["values"] for result in results}) == 3
    assert [result.scalars["returns"] for result in results] == [results[0].scalars["returns"]] * 3


def test_critic_only_rollouts_leave_the_policy(tiny_model: Path, tmp_path: Path) -> None:
    rank = LocalRank(0, 1, setup_of(tiny_model, tmp_path, only=2))
    before = flat(rank)
    for number in range(2):
        result = rank.train_step(batch_of(number))
        assert result.tokens == 0
        assert "grad_norm" not in result.scalars
        assert result.scores.keys() == {0, 1, 2, 3}
    assert torch.equal(flat(rank), before)
    assert rank.train_step(batch_of(2)).tokens > 0
    assert not torch.equal(flat(rank), before)


def test_non_finite_step_changes_neither_model(tiny_model: Path, tmp_path: Path) -> None:
    rank = LocalRank(0, 1, setup_of(tiny_model, tmp_path))
    rank.train_step(batch_of(0))
    rank.save(tmp_path / "before")
    huge = dataclasses.replace(batch_of(1), rollout_log_probs_T=array("f", [math.nan] * len(batch_of().tokens_T)))
    with pytest.raises(NonFiniteError):
        rank.train_step(huge)
    rank.save(tmp_path / "after")
    for name in ("adamw.safetensors", "critic/adamw.safetensors"):
        assert (tmp_path / "before" / "optim" / name).read_bytes() == (tmp_path / "after" / "optim" / name).read_bytes()
