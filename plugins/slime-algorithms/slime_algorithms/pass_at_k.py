"""PassAtK: advantages for the reward of pass@k, in closed form.

Example:

    PassAtK(PassAtKSettings(k=4))(batch)      # [T], batch an AdvantageInput
"""

import torch

from slime_algorithms.settings import PassAtKSettings
from slime_core.roles import AdvantageInput
from slime_train import Groups


class PassAtK:
    """Pass@k training with its analytical advantage (Chen et al. 2025, arXiv:2508.10751).

    In a group of N rollouts, W of them wrong, a draw of k contains a correct one with probability
    R = 1 - C(W, k) / C(N, k) and standard deviation s = sqrt(R (1 - R)). A response's advantage is the mean over all
    draws that contain it:

        correct    (1 - R) / s
        wrong      (1 - R - C(W - 1, k - 1) / C(N - 1, k - 1)) / s

    All advantages are 0 if s = 0: no rollout is correct, or so many are correct that no draw can fail. A group of fewer
    than k rollouts is one draw. k = 1 is GRPO on rewards 0 and 1, with the biased standard deviation.
    """

    def __init__(self, settings: PassAtKSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in standard deviations of pass@k; all tokens of a sample share one value."""
        groups = Groups.of(batch)
        reward_S = groups.of_rollout(groups.weight_S * batch.rewards_S.double())
        is_wrong_S = (reward_S < self._settings.correct_from).double()
        wrong_count_S = groups.total(groups.weight_S * is_wrong_S).round()
        fail_S = self._all_wrong(wrong_count_S, groups.rollouts_S, start=0)
        fail_if_wrong_S = self._all_wrong(wrong_count_S, groups.rollouts_S, start=1)
        deviation_S = (fail_S * (1 - fail_S)).sqrt()
        normalized_S = (fail_S - is_wrong_S * fail_if_wrong_S) / deviation_S
        advantage_S = torch.where(deviation_S > 0, normalized_S, 0.0)
        return advantage_S.to(batch.rewards_S.dtype)[batch.sample_index_T]

    def _all_wrong(self, wrong_count_S: torch.Tensor, rollouts_S: torch.Tensor, *, start: int) -> torch.Tensor:
        """Probability [S] that k distinct rollouts are all wrong, given that the first `start` are."""
        prob_S = torch.ones_like(wrong_count_S)
        for drawn in range(start, self._settings.k):
            left_S = rollouts_S - drawn
            prob_S = prob_S * torch.where(left_S > 0, (wrong_count_S - drawn).clamp_min(0) / left_S.clamp_min(1), 1.0)
        return prob_S
