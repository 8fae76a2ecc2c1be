"""Opo: rewards relative to the minimum-variance baseline, the group's length-weighted mean.

Example:

    Opo()(batch)      # [T], batch an AdvantageInput
"""

import torch

from slime_core.roles import AdvantageInput
from slime_train import Groups, masked_sum


class Opo:
    """OPO (Hao et al. 2025, arXiv:2505.23585).

    A_i = r_i - sum_j l_j r_j / sum_j l_j over the rollouts j of i's group, where l_j counts the trained tokens of
    rollout j. The baseline has minimum variance if all tokens have about the same squared gradient. All samples of one
    execution are one rollout; its length is their sum. A group of one has advantage 0. A group without trained tokens
    uses the plain mean. Designed for one optimizer step per rollout, exactly on-policy.
    """

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in units of reward; all tokens of a sample share one value."""
        groups = Groups.of(batch)
        length_S = torch.zeros_like(groups.reward_S)
        trained_S = masked_sum(torch.ones_like(batch.loss_mask_T), batch.loss_mask_T, batch.sample_index_T)
        length_S[: len(trained_S)] = trained_S.double()
        # Each sample counts its rollout's length, so that samples sum to the rollout's length times its mean reward.
        weighted_S = groups.weight_S * groups.of_rollout(length_S)
        total_S = groups.total(weighted_S)
        mean_S = groups.reward_S - groups.centred_S
        baseline_S = torch.where(total_S > 0, groups.total(weighted_S * groups.reward_S) / total_S.clamp_min(1), mean_S)
        return (groups.reward_S - baseline_S).to(batch.rewards_S.dtype)[batch.sample_index_T]
