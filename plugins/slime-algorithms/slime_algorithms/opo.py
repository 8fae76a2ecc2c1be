"""Opo: rewards relative to the baseline of least variance, the mean of the group weighed by lengths.

Example:

    Opo()(batch)      # [T], batch an AdvantageInput
"""

import torch

from slime_core.roles import AdvantageInput
from slime_train import Groups, masked_sum


class Opo:
    """OPO (Hao et al. 2025, arXiv:2505.23585).

    A_i = r_i - sum_j l_j r_j / sum_j l_j over the rollouts j of i's group, l_j the trained tokens of rollout j: of a
    policy that gives each token about the same squared gradient, the baseline that leaves the least variance. Samples
    that one execution fanned out into are one rollout: its length is theirs together. A group of one has advantage 0,
    and where no token is trained the baseline is the plain mean. Meant for one step a rollout, exactly on-policy.
    """

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in units of reward: every token of a sample has its sample's."""
        groups = Groups.of(batch)
        length_S = torch.zeros_like(groups.reward_S)
        found_S = masked_sum(torch.ones_like(batch.loss_mask_T), batch.loss_mask_T, batch.sample_index_T)
        length_S[: len(found_S)] = found_S.double()
        # A rollout's length times its mean reward is what its samples sum to, with the length of all at each.
        weighed_S = groups.weight_S * groups.of_rollout(length_S)
        total_S = groups.total(weighed_S)
        mean_S = groups.reward_S - groups.centred_S
        baseline_S = torch.where(total_S > 0, groups.total(weighed_S * groups.reward_S) / total_S.clamp_min(1), mean_S)
        return (groups.reward_S - baseline_S).to(batch.rewards_S.dtype)[batch.sample_index_T]
