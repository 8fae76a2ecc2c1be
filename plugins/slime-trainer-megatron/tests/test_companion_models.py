"""Companion models: weights that are swapped into the policy's module, or a separate model if they do not fit."""

from pathlib import Path

import pytest
import torch
from models_and_steps import dealt, setup_of, steps_of, write_model

from slime_core.roles import Reference, Teacher
from slime_train import Share
from slime_trainer_megatron.compat import suppress_import_warnings
from slime_trainer_megatron.rank import MegatronRank

with suppress_import_warnings():
    from slime_trainer_megatron.companion_models import FrozenModel, SwappedModel
    from slime_trainer_megatron.model import weights_of

ONE = {"num_gpus": 1}


def copied(rank: MegatronRank) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in weights_of(rank.policy).items()}


@pytest.mark.parametrize(
    ("family", "changes", "bf16"),
    [
        ("qwen3", {}, False),
        ("qwen3", {"tie_word_embeddings": True}, True),
        ("deepseek_v3", {}, False),
        ("qwen3_moe", {}, False),
    ],
)
def test_swapped_weights_equal_a_separate_model(
    family: str, changes: dict[str, object], bf16: bool, tmp_path: Path
) -> None:
    mine, theirs = (write_model(tmp_path / f"{seed}", family, seed=seed, **changes) for seed in (0, 1))
    (rows,) = steps_of(mine, 1)
    setup = setup_of(mine, tmp_path, ONE, bf16=bf16, reference=Reference(theirs, use_kl_loss=True))
    rank = MegatronRank(0, 1, setup)
    share, before = Share.of(dealt(rows, 1)[0], setup), copied(rank)
    assert isinstance(rank.companions.reference, SwappedModel)
    (found,) = rank.companions.add_log_probs([share])
    alone = FrozenModel(theirs, setup)
    alone.policy.requires_grad_(
        True
    )  # torch chooses kernels by this flag, which changes the last bits of latent attention
    wanted = alone.passes.log_probs(share, share.mask_T)
    assert found.ref_log_probs_T is not None
    assert torch.equal(found.ref_log_probs_T, wanted)
    assert not torch.equal(rank.passes.log_probs(share, share.mask_T), wanted)
    assert all(torch.equal(each, before[name]) for name, each in weights_of(rank.policy).items())


def test_hooks_see_the_weights_in_use(tmp_path: Path) -> None:
    mine, theirs, other = (write_model(tmp_path / f"{seed}", "qwen3", seed=seed) for seed in range(3))
    (rows,) = steps_of(mine, 1)
    setup = setup_of(
        mine, tmp_path, ONE, reference=Reference(theirs, use_kl_loss=True), teacher=Teacher(other, kl_coef=1.0)
    )
    rank, seen = MegatronRank(0, 1, setup), dict[str, torch.Tensor]()

    def watch(weights: str, policy: torch.nn.Module) -> None:
        seen[weights] = next(policy.parameters()).detach().clone()

    rank.companions.add_log_probs([Share.of(dealt(rows, 1)[0], setup)], watch)
    first = [next(FrozenModel(each, setup).policy.parameters()) for each in (theirs, other)]
    assert list(seen) == ["ref", "teacher"]
    assert all(torch.equal(one, two) for one, two in zip(seen.values(), first, strict=True))


def test_policy_weights_return_after_an_error(tmp_path: Path) -> None:
    mine, theirs = (write_model(tmp_path / f"{seed}", "qwen3", seed=seed) for seed in range(2))
    rank = MegatronRank(0, 1, setup_of(mine, tmp_path, ONE, reference=Reference(theirs, use_kl_loss=True)))
    before, reference = copied(rank), rank.companions.reference
    assert reference is not None
    with pytest.raises(RuntimeError, match="in the middle"), reference.in_place():
        raise RuntimeError("in the middle")
    assert all(torch.equal(each, before[name]) for name, each in weights_of(rank.policy).items())


def test_other_dimensions_use_a_separate_model(tmp_path: Path) -> None:
    mine, theirs = write_model(tmp_path / "mine", "qwen3"), write_model(tmp_path / "wide", "qwen3", hidden_size=64)
    setup = setup_of(mine, tmp_path, ONE, teacher=Teacher(theirs, kl_coef=1.0))
    assert isinstance(MegatronRank(0, 1, setup).companions.teacher, FrozenModel)
