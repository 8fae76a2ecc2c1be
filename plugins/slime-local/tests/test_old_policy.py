"""What a rank does a rollout: older weights for the ratio, moments that are forgotten, what it trains on kept."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_rank import batches, flat

from slime_core.roles import Choice, TrainBatch
from slime_local.rank import LocalRank
from slime_local.step import LocalStep
from slime_train import Share, Sums
from slime_train.settings import TisSettings
from tests.ranks import optim, rank_setup

TIS = Choice("correction", "tis", "slime-core", TisSettings())


def rank_of(tiny_model: Path, folder: Path, **fields: object) -> LocalRank:
    """It keeps what it trains on in `folder`."""
    kept = {"train_data": str(folder / "dump" / "{rollout_id}-{rank}.safetensors"), **fields}
    return LocalRank(0, 1, dataclasses.replace(rank_setup(tiny_model, folder, lr=1e-2), **kept))  # type: ignore[arg-type]


def batch_of(rollout_id: int) -> TrainBatch:
    return dataclasses.replace(batches(1)[0], rollout_id=rollout_id)


def old_log_probs(rank: LocalRank, folder: Path, rollout_id: int) -> torch.Tensor:
    """The old log-probs in the only step of a rollout."""
    rank.begin_rollout([batch_of(rollout_id)])
    return load_file(folder / "dump" / f"{rollout_id}-0.safetensors")["0/old_log_probs_T"]


def test_ratios_use_the_generating_weights(tiny_model: Path, tmp_path: Path) -> None:
    """Version 0 is served while rollouts 0 and 1 are trained on, version 2 after that."""
    rank = rank_of(tiny_model, tmp_path, correction=TIS, old_actor_lag=0)
    rank.published(0)
    first = old_log_probs(rank, tmp_path, 0)
    rank.train_step(batch_of(0))
    assert torch.equal(old_log_probs(rank, tmp_path, 1), first)
    told = rank.train_step(batch_of(1))
    assert told.metrics["ppo_kl"] != 0.0, "the policy is no more what generated them"
    rank.published(2)
    assert not torch.equal(old_log_probs(rank, tmp_path, 2), first)
    assert rank.train_step(batch_of(2)).metrics["ppo_kl"] == pytest.approx(0.0, abs=1e-4)


def test_optimizer_states_reset_each_rollout(tiny_model: Path, tmp_path: Path) -> None:
    """The second rollout's step equals the first step of a rank that starts with these weights."""
    about = dataclasses.replace(optim(1e-2), reset_optimizer_states=True)
    rank, plain = rank_of(tiny_model, tmp_path, optim=about), rank_of(tiny_model, tmp_path)
    for each in (rank, plain):
        each.train_step(batch_of(0))
    assert torch.equal(flat(rank), flat(plain))
    rank.save(tmp_path / "after")
    anew = rank_of(tmp_path / "after" / "hf", tmp_path)
    for each in (rank, plain, anew):
        each.train_step(batch_of(1))
    assert torch.equal(flat(rank), flat(anew))
    assert not torch.equal(flat(rank), flat(plain))


def test_train_data_is_saved_per_rollout(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, run = list[Share](), LocalStep.run

    def watched(step: LocalStep, share: Share, **options: bool) -> tuple[torch.Tensor, Sums]:
        given.append(share)
        return run(step, share, **options)

    monkeypatch.setattr(LocalStep, "run", watched)
    rank = rank_of(tiny_model, tmp_path, correction=TIS)
    steps = [dataclasses.replace(batch_of(7), step=step) for step in (0, 1)]
    rank.begin_rollout(steps)
    kept = load_file(tmp_path / "dump" / "7-0.safetensors")
    for step in steps:
        rank.train_step(step)
    batch, share = steps[1], given[1]
    assert kept["1/tokens_T"].tolist() == list(batch.tokens_T)
    assert kept["1/rewards_S"].tolist() == list(batch.rewards_S)
    assert kept["1/response_lengths_S"].tolist() == list(batch.response_lengths_S)
    prompts = kept["1/prompts"].split(kept["1/prompt_lengths_P"].tolist())
    assert [each.tolist() for each in prompts] == [list(each) for each in batch.prompts_P]
    for name in ("mask_T", "rollout_log_probs_T", "advantages_T", "old_log_probs_T"):
        assert torch.equal(kept[f"1/{name}"], getattr(share, name)), name
    assert "0/old_log_probs_T" not in kept, "in the first step they are the step's own"
    assert [path.name for path in (tmp_path / "dump").iterdir()] == ["7-0.safetensors"]
