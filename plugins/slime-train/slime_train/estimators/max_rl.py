"""MaxRL: rewards relative to their group, in units of the group's mean reward.

Example:

    MaxRl(EstimatorSettings())(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING

from slime_core.errors import ContractError
from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import EstimatorSettings, of_tokens

if TYPE_CHECKING:
    import torch


class MaxRl:
    """Maximum likelihood RL (Tajwar et al. 2026, arXiv:2602.02710): a rare success counts as much as many.

    A_i = (r_i - mean(r)) / mean(r) over the rollouts of i's group, as in prime-rl: for rewards 0 and 1, the gradient is
    the successes' mean score minus all rollouts' mean. Groups without a success and groups of one have advantage 0.

    For N rollouts with success probability p, the expected gradient is (1 - (1 - p)^(N - 1)) / p grad(p): the gradient
    of log p = -sum over k of (1 - p)^k / k, truncated at k = N - 1. GRPO and RLOO follow grad(p).
    """

    def __init__(self, settings: EstimatorSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in means of their group's rewards: every token of a sample has its sample's.

        Raises:
            ContractError: a reward is below 0, so that the mean may be near 0 for large rewards.
        """
        import torch

        from slime_train.groups import Groups

        if (batch.rewards_S < 0).any():
            raise ContractError(
                "advantage max_rl divides by the mean reward of a group, as by a share of successes, and a reward is "
                f"{float(batch.rewards_S.min()):g}: give rewards of 0 or more, also after reward shapers, or choose "
                'another estimator, as advantage_estimator = "grpo"'
            )
        groups = Groups.of(batch)
        mean_S = groups.raw_S - groups.centred_S
        advantage_S = torch.where(mean_S > 0, groups.centred_S / mean_S, 0.0)
        return of_tokens(batch, advantage_S, self._settings)


SPEC = AdvantageSpec(
    "max_rl",
    lambda settings, setup: MaxRl(settings),
    EstimatorSettings,
    "Rewards relative to their group, in units of its mean (MaxRL)",
    compares_samples=lambda settings: True,
    flat_keys=tuple(EstimatorSettings.model_fields),
)
