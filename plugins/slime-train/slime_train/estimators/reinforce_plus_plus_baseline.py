"""REINFORCE++-baseline: rewards less their group's mean, whitened over the rollout.

Example:

    ReinforcePlusPlusBaseline(ReinforcePlusPlusBaselineSettings())(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING

from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import EstimatorSettings, WhitenedSettings, whiten_if_set

if TYPE_CHECKING:
    import torch


class ReinforcePlusPlusBaselineSettings(WhitenedSettings):
    """`[advantage.reinforce_plus_plus_baseline]`, slime's flags."""


class ReinforcePlusPlusBaseline:
    """REINFORCE++-baseline (Hu et al. 2025, arXiv:2501.03262, section 3): rewards centred in groups, then whitened.

    A = r - mean(r) of the group for every token, less kl_coef times its own KL to the reference with `kl_coef`, then
    `whiten` over the rollout in place of each group's own deviation.
    """

    def __init__(self, settings: EstimatorSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in standard deviations over the rollout's tokens."""
        from slime_train.groups import Groups

        advantage_T = Groups.of(batch).centred_S.to(batch.rewards_S.dtype)[batch.sample_index_T]
        if batch.kl_penalty_T is not None:
            advantage_T = advantage_T - batch.kl_penalty_T
        return whiten_if_set(batch, advantage_T, self._settings)


SPEC = AdvantageSpec(
    "reinforce_plus_plus_baseline",
    lambda settings, setup: ReinforcePlusPlusBaseline(settings),
    ReinforcePlusPlusBaselineSettings,
    "Rewards minus their group's mean, whitened over the step (REINFORCE++-baseline)",
    uses_kl_penalty=True,
    flat_keys=tuple(ReinforcePlusPlusBaselineSettings.model_fields),
)
