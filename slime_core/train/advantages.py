"""Advantage estimators: from rewards to one advantage per response token, always by group identity.

Example:

    Grpo(GrpoSettings())(AdvantageInput(rewards_S, group_index_S, sample_index_T, loss_mask_T))      # [T]
"""

import torch

from slime_core.roles import AdvantageInput
from slime_core.train.settings import GrpoSettings

EPSILON = 1e-6
"""Added to the standard deviation, as slime has it."""


class Grpo:
    """GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2): rewards relative to their group.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6), with the unbiased standard deviation, as slime has it. Without the
    division it is Dr.GRPO's (Liu et al. 2025, arXiv:2503.20783). A group of one has advantage 0, never NaN.
    """

    def __init__(self, settings: GrpoSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T]: every token of a sample has its sample's."""
        return self.of_samples(batch.rewards_S, batch.group_index_S)[batch.sample_index_T]

    def of_samples(self, rewards_S: torch.Tensor, group_index_S: torch.Tensor) -> torch.Tensor:
        """Advantages [S] of samples.

        Computed in float64, in which the mean of equal float32 rewards is exact: their advantage is exactly 0, and no
        rounding noise is blown up by the division.
        """
        if not self._settings.rewards_normalization:
            return rewards_S
        _, group_S = torch.unique(group_index_S, return_inverse=True)
        count_G = torch.bincount(group_S).double()
        reward_S = rewards_S.double()
        mean_G = torch.zeros_like(count_G).index_add_(0, group_S, reward_S) / count_G
        advantage_S = reward_S - mean_G[group_S]
        if self._settings.grpo_std_normalization:
            square_G = torch.zeros_like(count_G).index_add_(0, group_S, advantage_S.square())
            std_G = (square_G / (count_G - 1).clamp_min(1)).sqrt()
            advantage_S = advantage_S / (std_G[group_S] + EPSILON)
        return advantage_S.to(rewards_S.dtype)
