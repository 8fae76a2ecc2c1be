"""What tests of the trainer's ranks share: one rank of the local trainer, set up for GRPO.

from tests.ranks import rank_setup

rank = LocalRank(0, 1, rank_setup(model_dir, tmp_path, lr=1e-2, settings={"lora_rank": 2}, bf16=True))
"""

from collections.abc import Mapping
from pathlib import Path

from slime_core.roles import Choice, Optim, PluginSet, RankSetup
from slime_core.sample import Json
from slime_local.settings import LocalTrainerSettings
from slime_train.estimators.grpo import GrpoSettings
from slime_train.settings import PolicyLossSettings


def optim(lr: float) -> Optim:
    """AdamW at a constant learning rate."""
    return Optim(lr, 0, "constant", 0.0, 0.9, 0.95, 1e-8, 0.01, 1.0, train_steps=10)


def rank_setup(
    model: Path, folder: Path, *, lr: float = 1e-3, settings: Mapping[str, Json] | None = None, **fields: object
) -> RankSetup:
    """Of `model`; ranks meet in `folder`. Trainer settings, and fields of the setup, as given."""
    usual = {
        "optim": optim(lr),
        "advantage": Choice("advantage", "grpo", "slime-core", GrpoSettings()),
        "loss": Choice("loss", "policy_loss", "slime-core", PolicyLossSettings()),
        "correction": None,
        "plugins": PluginSet(only=("slime-local",)),
        "settings": LocalTrainerSettings.model_validate({"ranks": 1, **(settings or {})}),
        "rollout_temperature": 1.0,
        "calculate_per_token_loss": True,
        "seed": 0,
        "rendezvous": f"file://{folder}/rendezvous",
    }
    return RankSetup(hf_checkpoint=model, **{**usual, **fields})  # type: ignore[arg-type]
