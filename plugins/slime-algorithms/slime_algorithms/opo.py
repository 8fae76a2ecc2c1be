"""Opo: rewards relative to the minimum-variance baseline, the group's length-weighted mean.

Example:

    Opo()(batch)      # [T], batch an AdvantageInput
"""

import torch

from slime_core.roles import AdvantageInput
from slime_train import Groups, masked_sum


class Opo:
    """OPO (Hao et al. 2025, arXiv:2505.23585).

    A_i = r_i - sum_j l_j r_j / sum_j l_j over the rollouts j of i's group, l_j the trained tokens of rollout j. The
    baseline has minimum variance if each token has about the same squared gradient. All samples of one execution are
    one rollout, whose length is their sum. A group of one has advantage 0; without trained tokens the baseline is the
    plain mean. Meant for one step a rollout, exactly on-policy.
    """

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in units of reward: every token of a sample has its sample's."""
        groups = Groups.of(batch)
        length_S = torch.zeros_like(groups.reward_S)
        found_S = masked_sum(torch.ones_like(batch.loss_mask_T), batch.loss_mask_T, batch.sample_index_T)
        length_S[: len(found_S)] = found_S.double()
        # Each sample counts its rollout's length, so that samples sum to the rollout's length times its mean reward.
        weighed_S = groups.weight_S * groups.of_rollout(length_S)
        total_S = groups.total(weighed_S)
        mean_S = groups.reward_S - groups.centred_S
        baseline_S = torch.where(total_S > 0, groups.total(weighed_S * groups.reward_S) / total_S.clamp_min(1), mean_S)
        return (groups.reward_S - baseline_S).to(batch.rewards_S.dtype)[batch.sample_index_T]
