"""What estimators have in common: one advantage a sample for all of its tokens, whitened over the rollout if asked.

Example:

    advantage_T = of_tokens(batch, advantage_S, settings)
"""

from typing import TYPE_CHECKING

from pydantic import Field

from slime_core.roles import AdvantageInput, Settings

if TYPE_CHECKING:
    import torch

EPSILON = 1e-6
"""Added to a standard deviation of rewards, as in slime."""


class EstimatorSettings(Settings):
    """Settings of estimators that do not whiten by default."""

    normalize_advantages: bool = Field(False, description="Whiten them over all trained tokens of the rollout.")


class WhitenedSettings(EstimatorSettings):
    """Settings of estimators that whiten by default."""

    normalize_advantages: bool = Field(True, description="Whiten them over all trained tokens of the rollout.")


def of_tokens(batch: AdvantageInput, advantage_S: "torch.Tensor", settings: EstimatorSettings) -> "torch.Tensor":
    """Every token its sample's advantage [T], whitened if asked."""
    return whiten_if_set(batch, advantage_S.to(batch.rewards_S.dtype)[batch.sample_index_T], settings)


def whiten_if_set(batch: AdvantageInput, advantage_T: "torch.Tensor", settings: EstimatorSettings) -> "torch.Tensor":
    """Advantages [T], whitened over the trained tokens of all ranks if asked."""
    from slime_train.sequences import whiten

    if not settings.normalize_advantages:
        return advantage_T
    return whiten(advantage_T, batch.loss_mask_T, batch.sum_over_ranks)
