"""What a rank does a rollout: older weights for the ratio, moments that are forgotten, what it trains on kept."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_rank import batches, flat

from slime_core.roles import Choice, OldActor, Optim, TrainBatch
from slime_local.demo.tiny import write_tiny_model
from slime_local.optimizer import FlatAdamW
from slime_local.rank import LocalRank
from slime_local.step import LocalStep
from slime_train import Share, Sums
from slime_train.settings import TisSettings
from tests.ranks import optim, rank_setup
from tests.tables import table

TIS = Choice("correction", "tis", "slime-core", TisSettings())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_model(directory=directory, task="chain", seed=0)
    return directory


def rank_of(model: Path, folder: Path, **fields: object) -> LocalRank:
    """It keeps what it trains on in `folder`."""
    kept = {"train_data": str(folder / "dump" / "{rollout_id}-{rank}.safetensors"), **fields}
    return LocalRank(0, 1, dataclasses.replace(rank_setup(model, folder, lr=1e-2), **kept))  # type: ignore[arg-type]


def batch_of(rollout_id: int) -> TrainBatch:
    return dataclasses.replace(batches(1)[0], rollout_id=rollout_id)


def old_log_probs(rank: LocalRank, folder: Path, rollout_id: int) -> torch.Tensor:
    """Those that a rollout's only step is given."""
    rank.begin_rollout([batch_of(rollout_id)])
    return load_file(folder / "dump" / f"{rollout_id}-0.safetensors")["0/old_log_probs_T"]


def test_ratios_are_against_the_weights_that_generated_the_rollout(model: Path, tmp_path: Path) -> None:
    """Version 0 is served while rollouts 0 and 1 are trained on, version 2 after that."""
    rank = rank_of(model, tmp_path, correction=TIS, old_actor=OldActor(lag=0))
    rank.published(0)
    first = old_log_probs(rank, tmp_path, 0)
    rank.train_step(batch_of(0))
    assert torch.equal(old_log_probs(rank, tmp_path, 1), first)
    told = rank.train_step(batch_of(1))
    assert told.metrics["ppo_kl"] != 0.0, "the policy is no more what generated them"
    rank.published(2)
    assert not torch.equal(old_log_probs(rank, tmp_path, 2), first)
    assert rank.train_step(batch_of(2)).metrics["ppo_kl"] == pytest.approx(0.0, abs=1e-4)


def test_one_rollout_ahead_they_are_of_the_version_before_and_a_resume_has_it(model: Path, tmp_path: Path) -> None:
    one, other = (rank_of(model, tmp_path, correction=TIS, old_actor=OldActor(lag=1)) for _ in range(2))
    one.published(0)
    first = old_log_probs(one, tmp_path, 0)
    for rollout_id in (0, 1):
        one.train_step(batch_of(rollout_id))
        one.published(rollout_id + 1)
    one.save(tmp_path / "saved", hf=False)
    other.load(tmp_path / "saved")
    other.published(2)
    second = old_log_probs(one, tmp_path, 2)
    assert torch.equal(old_log_probs(other, tmp_path, 2), second)
    assert not torch.equal(second, first)
    for each in (one, other):
        each.train_step(batch_of(2))
    assert torch.equal(flat(one), flat(other))


def test_without_older_weights_the_first_step_is_at_no_distance(model: Path, tmp_path: Path) -> None:
    rank = rank_of(model, tmp_path, correction=TIS)
    for rollout_id in (0, 1):
        assert rank.train_step(batch_of(rollout_id)).metrics["ppo_kl"] == 0.0


@table("resets, where", [(True, [0.9, 0.8, 0.9]), (False, [0.9, 0.8, 0.8])])
def test_a_first_step_without_moments_is_as_long_as_the_learning_rate(resets: bool, where: list[float]) -> None:
    """AdamW's first step is lr along the sign of the gradient, whatever its size: m / sqrt(v) is 1.

    Two steps of 1.0 and then one of -0.5: with what is remembered of the two, the moment still points their way.
    """
    about = dataclasses.replace(optim(0.1), weight_decay=0.0, adam_eps=1e-12, reset_optimizer_states=resets)
    weights = torch.tensor([1.0])
    optimizer, found = FlatAdamW(weights, [], about), list[float]()
    for gradient in (1.0, 1.0, -0.5):
        if gradient < 0:
            optimizer.begin_rollout()
        optimizer.step(torch.tensor([gradient]), abs(gradient))
        found.append(float(weights))
    assert optimizer.steps == 3, "the schedule goes on"
    if resets:
        assert found == pytest.approx(where, abs=1e-6)
    else:
        assert found[:2] == pytest.approx(where[:2], abs=1e-6)
        assert found[2] < where[2], "it still goes on as before"


def test_the_schedule_goes_on_where_moments_are_forgotten() -> None:
    linear = Optim(0.1, 0, "linear", 0.0, 0.9, 0.95, 1e-8, 0.0, 1.0, train_steps=4, reset_optimizer_states=True)
    optimizer = FlatAdamW(torch.zeros(1), [], linear)
    rates = []
    for _ in range(4):
        optimizer.begin_rollout()
        rates.append(optimizer.step(torch.ones(1), 1.0))
    assert rates == pytest.approx([0.1, 0.2 / 3, 0.1 / 3, 0.0])


def test_a_rank_forgets_at_the_beginning_of_each_rollout(model: Path, tmp_path: Path) -> None:
    """The second rollout's step is that of a rank which begins with these weights."""
    about = dataclasses.replace(optim(1e-2), reset_optimizer_states=True)
    rank, plain = rank_of(model, tmp_path, optim=about), rank_of(model, tmp_path)
    for each in (rank, plain):
        each.train_step(batch_of(0))
    assert torch.equal(flat(rank), flat(plain))
    rank.save(tmp_path / "after")
    anew = rank_of(tmp_path / "after" / "hf", tmp_path)
    for each in (rank, plain, anew):
        each.train_step(batch_of(1))
    assert torch.equal(flat(rank), flat(anew))
    assert not torch.equal(flat(rank), flat(plain))


def test_what_is_trained_on_is_kept_a_file_a_rollout(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, run = list[Share](), LocalStep.run

    def watched(step: LocalStep, share: Share, **options: bool) -> tuple[torch.Tensor, Sums]:
        given.append(share)
        return run(step, share, **options)

    monkeypatch.setattr(LocalStep, "run", watched)
    rank = rank_of(model, tmp_path, correction=TIS)
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
