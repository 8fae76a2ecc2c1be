"""PassAtK: advantages as if k responses had been drawn and judged together, in closed form.

Example:

    PassAtK(PassAtKSettings(k=4))(batch)      # [T], batch an AdvantageInput
"""

import torch

from slime_algorithms.settings import PassAtKSettings
from slime_core.roles import AdvantageInput
from slime_train import Groups


class PassAtK:
    """Pass@k training with its analytical advantage (Chen et al. 2025, arXiv:2508.10751).

    Of a group of N rollouts, W of them wrong, a draw of k has a correct one with probability R = 1 - C(W, k) / C(N, k),
    and its deviation is s = sqrt(R (1 - R)). A response's advantage is the mean over the draws that it is part of:

        correct    (1 - R) / s
        wrong      (1 - R - C(W - 1, k - 1) / C(N - 1, k - 1)) / s

    and 0 for all where s is 0: no rollout is correct, or so many are that no draw can fail. A group of fewer than k
    rollouts is one draw. k = 1 is GRPO on 0 and 1, with the biased deviation.
    """

    def __init__(self, settings: PassAtKSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in standard deviations of pass@k: every token of a sample has its sample's."""
        groups = Groups.of(batch)
        reward_S = groups.of_rollout(groups.weight_S * batch.rewards_S.double())
        wrong_S = (reward_S < self._settings.correct_from).double()
        wrongs_S = groups.total(groups.weight_S * wrong_S).round()
        fails_S = self._all_wrong(wrongs_S, groups.rollouts_S, start=0)
        others_S = self._all_wrong(wrongs_S, groups.rollouts_S, start=1)
        deviation_S = (fails_S * (1 - fails_S)).sqrt()
        judged_S = (fails_S - wrong_S * others_S) / deviation_S
        advantage_S = torch.where(deviation_S > 0, judged_S, 0.0)
        return advantage_S.to(batch.rewards_S.dtype)[batch.sample_index_T]

    def _all_wrong(self, wrongs_S: torch.Tensor, rollouts_S: torch.Tensor, *, start: int) -> torch.Tensor:
        """Probability [S] that k distinct rollouts are all wrong, given that the first `start` are."""
        found_S = torch.ones_like(wrongs_S)
        for drawn in range(start, self._settings.k):
            left_S = rollouts_S - drawn
            found_S = found_S * torch.where(left_S > 0, (wrongs_S - drawn).clamp_min(0) / left_S.clamp_min(1), 1.0)
        return found_S
