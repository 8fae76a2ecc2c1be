"""GPG: rewards minus their group's mean, scaled up for groups without a gradient.

Example:

    Gpg()(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING

from slime_core.roles import AdvantageInput, AdvantageSpec

if TYPE_CHECKING:
    import torch


class Gpg:
    """Group policy gradient (Chu et al. 2025, arXiv:2504.02546), with F_norm = 1 and accurate gradient estimation.

    A_i = B / (B - M) (r_i - mean(r)) of i's group, where B counts the rollouts of all groups, on all ranks,
    that have a trained token, and M the ones in groups of equal rewards. They have no gradient and count in
    the denominator of its mean. All samples of one execution count as one rollout. (verl counts samples of reward 0 as
    M, although they have a gradient.)

    The paper's loss is -A logp; `policy_loss` has the same gradient while the policy is still the sampler.
    """

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in units of reward: every token of a sample has its sample's."""
        import torch

        from slime_train.groups import Groups

        groups = Groups.of(batch)
        tokens_S = torch.zeros_like(groups.raw_S).index_add_(0, batch.sample_index_T, batch.loss_mask_T.double())
        counted_S = groups.weight_S * (groups.of_rollout(tokens_S) > 0)
        differs_S = groups.total(groups.reward_S) > 0
        every, those = batch.sum_over_ranks(torch.stack([counted_S.sum(), (counted_S * differs_S).sum()]))
        advantage_S = groups.centred_S * torch.where(those > 0, every / those, 1.0)
        return advantage_S.to(batch.rewards_S.dtype)[batch.sample_index_T]


SPEC = AdvantageSpec(
    "gpg",
    lambda settings, setup: Gpg(),
    summary="Rewards minus their group's mean, made up for groups of equal rewards (GPG)",
    compares_samples=lambda settings: True,
)
