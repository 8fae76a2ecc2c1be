"""Groups: a step's rewards by group identity, where all samples that one execution fanned out into count as one.

Example:

    Groups.of(batch).centred_S          # [S], rewards minus the mean of their group
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from slime_core.roles import AdvantageInput


@dataclass(frozen=True, slots=True)
class Groups:
    """Rewards of S samples of R rollouts in G groups, in float64.

    Rewards are measured from their group's lowest. For equal rewards, all differences and sums are then exactly 0: no
    division amplifies rounding noise, and their samples can be skipped.
    """

    group_S: torch.Tensor
    """Group of each sample, from 0 without gaps, int64 [S]."""
    rollout_S: torch.Tensor
    """Rollout of each sample, from 0 without gaps, int64 [S]."""
    weight_S: torch.Tensor
    """One over the samples of its rollout, [S]."""
    rollouts_S: torch.Tensor
    """Number of rollouts in its group, [S]."""
    raw_S: torch.Tensor
    """Unchanged rewards, [S]."""
    reward_S: torch.Tensor
    """Rewards above the lowest of their group, [S]."""
    centred_S: torch.Tensor
    """Rewards minus the mean over their group's rollouts, [S]."""

    @classmethod
    def of(cls, batch: AdvantageInput) -> "Groups":
        """The groups of a rank's share; its samples may have any order."""
        _, group_S = torch.unique(batch.group_index_S, return_inverse=True)
        _, rollout_S = torch.unique(batch.rollout_index_S, return_inverse=True)
        weight_S = 1 / torch.bincount(rollout_S).double()[rollout_S]
        rollouts_S = _sums(weight_S, group_S).round()
        raw_S = batch.rewards_S.double()
        lowest_G = raw_S.new_full((len(raw_S),), torch.inf).scatter_reduce(0, group_S, raw_S, "amin")
        reward_S = raw_S - lowest_G[group_S]
        centred_S = reward_S - _sums(weight_S * reward_S, group_S) / rollouts_S
        return cls(group_S, rollout_S, weight_S, rollouts_S, raw_S, reward_S, centred_S)

    def total(self, values_S: torch.Tensor) -> torch.Tensor:
        """Sum over the samples of each sample's group [S]. Multiply by `weight_S` first to count each rollout once."""
        return _sums(values_S, self.group_S)

    def of_rollout(self, values_S: torch.Tensor) -> torch.Tensor:
        """Sum over the samples that came from one rollout with each sample [S]."""
        return _sums(values_S, self.rollout_S)

    def deviation(self) -> torch.Tensor:
        """Unbiased standard deviation of the rewards of each sample's group [S]; 0 in a group of one rollout."""
        squares_S = self.total(self.weight_S * self.centred_S.square())
        return (squares_S / (self.rollouts_S - 1).clamp_min(1)).sqrt()

    def deviation_over_ranks(self, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Unbiased standard deviation of the rewards of all groups on all ranks, a number; 0 of one rollout.

        Args:
            sum_over_ranks: adds up a tensor over the ranks; called twice, also by a rank without samples.
        """
        count, total = sum_over_ranks(torch.stack([self.weight_S.sum(), (self.weight_S * self.raw_S).sum()]))
        apart_S = self.raw_S - total / count.clamp_min(1)
        squares = sum_over_ranks((self.weight_S * apart_S.square()).sum())
        deviation: torch.Tensor = (squares / (count - 1).clamp_min(1)).sqrt()
        return deviation

    def leave_one_out(self) -> torch.Tensor:
        """Rewards minus the mean over the other rollouts of their group [S]; 0 in a group of one rollout."""
        own_S = self.of_rollout(self.weight_S * self.reward_S)
        others_S = self.total(self.weight_S * self.reward_S) - own_S
        left_S = self.reward_S - others_S / (self.rollouts_S - 1).clamp_min(1)
        return torch.where(self.rollouts_S > 1, left_S, 0.0)


def _sums(values_S: torch.Tensor, index_S: torch.Tensor) -> torch.Tensor:
    """For each sample, the sum over the samples that share its number [S]."""
    return torch.zeros_like(values_S).index_add_(0, index_S, values_S)[index_S]
