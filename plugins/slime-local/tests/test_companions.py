"""Reference, teacher and critic: they use the policy's code path, survive a resume, and enter the loss."""

import dataclasses
from array import array
from pathlib import Path

import pytest
import torch
from test_rank import GROUPS, WHITENED, batches, flat

from slime_core.errors import ModelError
from slime_core.events import BeforeLogProb
from slime_core.roles import RankSetup, Reference, Teacher, TrainBatch
from slime_local.companions import CompanionModels
from slime_local.rank import LocalRank
from slime_train import RankHooks
from tests.ranks import rank_setup

KL = Reference(Path(), use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k2")


def setup_with(
    models: tuple[Path, Path], tmp_path: Path, *, same: bool = False, reference: Reference | None = None, **keys: object
) -> RankSetup:
    """Of the first model, whose reference is the second one, or the same."""
    policy, other = models
    if reference is not None:
        keys["reference"] = dataclasses.replace(reference, load=policy if same else other)
    kept = {name: keys.pop(name) for name in ("reference", "teacher") if name in keys}
    return dataclasses.replace(rank_setup(policy, tmp_path, **keys), **kept)  # type: ignore[arg-type]


def rank_with(models: tuple[Path, Path], tmp_path: Path, **keys: object) -> LocalRank:
    """A rank of `setup_with`."""
    return LocalRank(0, 1, setup_with(models, tmp_path, **keys))  # type: ignore[arg-type]


def batch_of(rollout_id: int = 0) -> TrainBatch:
    return dataclasses.replace(batches(1)[0], rollout_id=rollout_id)


def test_policy_equal_to_its_reference_has_zero_kl(models: tuple[Path, Path], tmp_path: Path) -> None:
    rank = rank_with(models, tmp_path, same=True, reference=dataclasses.replace(KL, kl_loss_type="k1"))
    first = rank.train_step(batch_of())
    assert first.metrics["kl_loss"] == 0.0
    assert first.metrics["ref_log_probs"] < 0.0
    assert rank.train_step(batch_of(1)).metrics["kl_loss"] != 0.0


def test_kl_loss_computes_groups_without_advantage(models: tuple[Path, Path], tmp_path: Path) -> None:
    trained = sum(sample.response_length for group in GROUPS for sample in group.samples)
    assert rank_with(models, tmp_path).train_step(batch_of()).tokens < trained
    assert rank_with(models, tmp_path, reference=KL).train_step(batch_of()).tokens == trained
    reported = dataclasses.replace(KL, kl_loss_coef=0.0)
    watched, plain = rank_with(models, tmp_path, reference=reported), rank_with(models, tmp_path)
    metrics = watched.train_step(batch_of()).metrics
    plain.train_step(batch_of())
    assert metrics["kl_loss"] > 0.0
    assert torch.equal(flat(watched), flat(plain))


def test_loss_includes_kl_times_its_coefficient(models: tuple[Path, Path], tmp_path: Path) -> None:
    metrics = rank_with(models, tmp_path, reference=KL).train_step(batch_of()).metrics
    assert metrics["loss"] == pytest.approx(metrics["pg_loss"] + 0.1 * metrics["kl_loss"], rel=1e-5)


def test_reference_is_refreshed_at_its_interval(models: tuple[Path, Path], tmp_path: Path) -> None:
    rank = rank_with(models, tmp_path, reference=dataclasses.replace(KL, update_interval=2))
    found = [rank.train_step(batch_of(number)).metrics["kl_loss"] for number in range(5)]
    assert [kl == 0.0 for kl in found] == [False, False, True, False, True]


def test_kl_in_rewards_changes_advantages(models: tuple[Path, Path], tmp_path: Path) -> None:
    reference = Reference(Path(), kl_coef=0.3, kl_loss_type="k1")
    rank = rank_with(models, tmp_path, reference=reference, advantage=WHITENED)
    with_kl = rank.train_step(batch_of())
    without = rank_with(models, tmp_path, advantage=WHITENED).train_step(batch_of())
    assert with_kl.metrics["kl_penalty"] > 0.0
    assert with_kl.scores != without.scores
    assert "kl_loss" not in with_kl.metrics


def test_rank_hooks_fire_for_each_model(
    models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(RankHooks, "fire", lambda hooks, event: told.append(event))
    rank = rank_with(models, tmp_path, reference=KL, teacher=Teacher(models[1], 1.0))
    rank.train_step(batch_of())
    asked = [event for event in told if isinstance(event, BeforeLogProb)]
    assert [event.weights for event in asked] == ["ref", "teacher", "actor"]
    assert len({id(event.model) for event in asked}) == 3


def test_refreshing_another_architecture_is_refused(models: tuple[Path, Path], tmp_path: Path) -> None:
    setup = setup_with(models, tmp_path, same=True, reference=dataclasses.replace(KL, update_interval=1))
    with pytest.raises(ModelError, match="leave ref_update_interval out"):
        CompanionModels(setup, lambda mine: mine).begin(1, torch.zeros(3))


def test_teacher_log_probs_may_come_from_a_column(models: tuple[Path, Path], tmp_path: Path) -> None:
    """The same step, to rounding, whether the ranks compute them or the batch brings them."""
    from slime_local.companions import FrozenModel
    from slime_local.model import GroupTokens

    batch, teacher = batch_of(), FrozenModel(models[1])
    starts = [0]
    for length in batch.response_lengths_S:
        starts.append(starts[-1] + length)
    column = array("f")
    for sample, prompt in enumerate(batch.prompt_index_S):
        response = batch.tokens_T[starts[sample] : starts[sample + 1]]
        column.extend(teacher.log_probs([GroupTokens(batch.prompts_P[prompt], [response])], 1.0).tolist())
    brought = dataclasses.replace(batch, columns_T={"teacher_log_probs": column})
    computing = rank_with(models, tmp_path, teacher=Teacher(models[1], 0.5))
    reading = rank_with(models, tmp_path, teacher=Teacher(None, 0.5))
    one, other = computing.train_step(batch), reading.train_step(brought)
    assert one.metrics["opd_reverse_kl"] == pytest.approx(other.metrics["opd_reverse_kl"], rel=1e-4)
    assert one.scores == pytest.approx(other.scores, rel=1e-4)
    student = torch.tensor(batch.rollout_log_probs_T) - torch.tensor(column)
    assert other.metrics["opd_reverse_kl"] == pytest.approx(float(student.sum()), rel=1e-4)
