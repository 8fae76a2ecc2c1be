"""PPO: generalized advantages of a critic's values, over the trained tokens of each sample.

Example:

    Ppo(PpoSettings(gamma=1.0, lambd=0.95))(batch)      # [T], batch an AdvantageInput with values_T
"""

from typing import TYPE_CHECKING

from pydantic import Field

from slime_core.errors import ContractError
from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import WhitenedSettings, whiten_if_set

if TYPE_CHECKING:
    import torch


class PpoSettings(WhitenedSettings):
    """`[advantage.ppo]`, slime's flags."""

    gamma: float = Field(1.0, ge=0.0, le=1.0, description="Discount of the rewards, per trained token.")
    lambd: float = Field(1.0, ge=0.0, le=1.0, description="How far errors of the critic reach: 0 one token, 1 all.")


class Ppo:
    """GAE (Schulman et al. 2016, arXiv:1506.02438, equations 11, 12 and 16) of tokens as actions.

    Number the trained tokens of a sample 1 to n; V_i is the value before token i is drawn, and V_(n+1) = 0. Then
    delta_i = r_i + gamma V_(i+1) - V_i and A_i = sum over k of (gamma lambd)^k delta_(i+k). The sample's reward is
    at its last trained token; `kl_coef` adds -kl_coef KL_i at each. Untrained tokens (tool output, masked) belong to
    the step of the trained token before them: they have no advantage and add no discount.
    """

    def __init__(self, settings: PpoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in units of reward, or of the rollout's standard deviation where they are whitened."""
        advantage_T = self._gae(batch).to(batch.rewards_S.dtype)
        advantage_T = whiten_if_set(batch, advantage_T, self._settings)
        return advantage_T * batch.loss_mask_T

    def returns(self, batch: AdvantageInput) -> "torch.Tensor":
        """Targets of the values [T]: A_i + V_i, the lambda-return; 0 where not trained on."""
        return (self._gae(batch) + _values(batch) * batch.loss_mask_T.double()).to(batch.rewards_S.dtype)

    def _gae(self, batch: AdvantageInput) -> "torch.Tensor":
        """Generalized advantages, float64 [T]; 0 where not trained on."""
        import torch

        from slime_train.sequences import discounted_sums

        found_T = torch.zeros_like(batch.loss_mask_T, dtype=torch.float64)
        places = batch.loss_mask_T.nonzero().flatten()
        sample_N, value_N = batch.sample_index_T[places], _values(batch)[places]
        same_N = sample_N[1:] == sample_N[:-1]
        ends_N = torch.cat([~same_N, same_N.new_ones(min(1, len(places)))])
        reward_N = torch.where(ends_N, batch.rewards_S.double()[sample_N], 0.0)
        if batch.kl_penalty_T is not None:
            reward_N = reward_N - batch.kl_penalty_T.double()[places]
        next_N = torch.where(ends_N, 0.0, value_N.roll(-1))
        delta_N = reward_N + self._settings.gamma * next_N - value_N
        found_T[places] = discounted_sums(delta_N, sample_N, self._settings.gamma * self._settings.lambd)
        return found_T


def _values(batch: AdvantageInput) -> "torch.Tensor":
    if batch.values_T is None:
        raise ContractError("advantage ppo was given no values_T: its spec says uses_values, so the trainer must")
    return batch.values_T.double()


SPEC = AdvantageSpec(
    "ppo",
    lambda settings, setup: Ppo(settings),
    PpoSettings,
    "Generalized advantages of a critic's values (PPO, GAE)",
    uses_kl_penalty=True,
    uses_values=True,
    flat_keys=tuple(PpoSettings.model_fields),
)
