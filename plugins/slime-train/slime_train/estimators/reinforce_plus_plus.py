"""REINFORCE++: discounted returns, whitened over the rollout; there is no group in it.

Example:

    ReinforcePlusPlus(ReinforcePlusPlusSettings(gamma=0.99))(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING

from pydantic import Field

from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import WhitenedSettings, whiten_if_set

if TYPE_CHECKING:
    import torch


class ReinforcePlusPlusSettings(WhitenedSettings):
    """`[advantage.reinforce_plus_plus]`, slime's flags."""

    gamma: float = Field(1.0, ge=0.0, le=1.0, description="Discount of the reward, per token before the last.")


class ReinforcePlusPlus:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262, section 3): discounted returns, whitened over the rollout.

    The sample's reward r is at its last trained token l: A_t = gamma^(l - t) r up to l and 0 after it; then `whiten`.
    Groups have no effect. As in slime, all tokens count as steps of the discount, including untrained ones.
    With `kl_coef`, every trained token k also has a reward of -kl_coef KL_k; A_t adds the sum over k >= t of
    gamma^(k - t) times it.
    """

    def __init__(self, settings: ReinforcePlusPlusSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in standard deviations of the rollout's returns."""
        import torch

        from slime_train.sequences import discounted_sums

        sample_T, place_T = batch.sample_index_T, torch.ones_like(batch.sample_index_T).cumsum(0)
        trained_T = torch.where(batch.loss_mask_T > 0, place_T, 0)
        last_S = torch.zeros_like(batch.rewards_S, dtype=torch.int64).scatter_reduce(0, sample_T, trained_T, "amax")
        ahead_T = last_S[sample_T] - place_T
        discount_T = torch.where(ahead_T >= 0, self._settings.gamma ** ahead_T.clamp_min(0).double(), 0.0)
        return_T = discount_T * batch.rewards_S.double()[sample_T]
        if batch.kl_penalty_T is not None:
            return_T = return_T - discounted_sums(batch.kl_penalty_T.double(), sample_T, self._settings.gamma)
        return whiten_if_set(batch, return_T.to(batch.rewards_S.dtype), self._settings)


SPEC = AdvantageSpec(
    "reinforce_plus_plus",
    lambda settings, setup: ReinforcePlusPlus(settings),
    ReinforcePlusPlusSettings,
    "Discounted rewards, whitened over the rollout (REINFORCE++)",
    uses_kl_penalty=True,
    flat_keys=tuple(ReinforcePlusPlusSettings.model_fields),
)
