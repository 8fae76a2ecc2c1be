"""TurnLevel: an advantage estimator that judges each turn of an agent by the rewards from that turn on.

Example:

    TurnLevel(TurnLevelSettings(gamma=0.9))(batch)      # [T]; reads the columns that TurnColumns makes
"""

import torch

from slime_agent_openai.turns import TURN_INDEX, TURN_REWARDS, TurnLevelSettings
from slime_core.roles import AdvantageInput

EPSILON = 1e-6  # Added to the standard deviation, as in slime's GRPO


class TurnLevel:
    """Discounted returns from each turn on, relative to the same turn in the group's other rollouts.

    Rewards by turn come from Zeng et al. 2025 (arXiv:2505.11821). Using normalised discounted returns as advantages of
    turns comes from GTPO (Ding et al. 2025, arXiv:2511.14846), without its reward shaping. With K_i turns in sample i,
    r_ik the reward of its turn k, from 1, and R_i its own reward, which comes with the last turn:

        G_ik = sum over l = k .. K_i of gamma^(l - k) r_il  +  gamma^(K_i - k) R_i                  [S, K]
        A_ik = (G_ik - mean_k(G)) / (std_k(G) + 1e-6)                                               [S, K]

    mean_k and std_k (unbiased) cover the rollouts of i's group with a turn k; samples of one execution share the weight
    of one. A turn that only one rollout has gets 0. Every token gets its turn's A [T]. Samples without rewards by turn
    count as one turn; if all do, this is GRPO. `std_normalization = false` omits the division.
    """

    def __init__(self, settings: TurnLevelSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        """Advantages [T], in standard deviations of a turn's returns, or in units of reward."""
        sample_T = batch.sample_index_T
        turn_T = batch.columns_T[TURN_INDEX].long().clamp_min(1) - 1  # numbered from 0
        return_SK, has_SK = self._returns(batch, turn_T)
        advantage_SK = _relative(batch, return_SK, has_SK, divides=self._settings.std_normalization)
        return advantage_SK[sample_T, turn_T].to(batch.rewards_S.dtype)

    def _returns(self, batch: AdvantageInput, turn_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return of each sample from each turn on [S, K], and whether it has that turn [S, K]."""
        last_S = torch.zeros_like(batch.rewards_S, dtype=torch.int64)
        last_S = last_S.scatter_reduce(0, batch.sample_index_T, turn_T, "amax")
        most = int(last_S.max()) + 1 if len(last_S) else 1
        has_SK = torch.arange(most, device=last_S.device) <= last_S[:, None]
        place_T = batch.sample_index_T * most + turn_T
        reward_P = batch.rewards_S.new_zeros(len(last_S) * most, dtype=torch.float64)
        reward_P = reward_P.index_add(0, place_T, batch.columns_T[TURN_REWARDS].double())
        return_SK = reward_P.view(len(last_S), most).scatter_add(1, last_S[:, None], batch.rewards_S.double()[:, None])
        for turn in range(most - 2, -1, -1):
            return_SK[:, turn] += self._settings.gamma * return_SK[:, turn + 1]
        return return_SK, has_SK


def _relative(batch: AdvantageInput, return_SK: torch.Tensor, has_SK: torch.Tensor, *, divides: bool) -> torch.Tensor:
    """Returns minus their turn's mean in their group, optionally over its deviation [S, K]; exactly 0 if all agree."""
    _, group_S = torch.unique(batch.group_index_S, return_inverse=True)
    _, rollout_S = torch.unique(batch.rollout_index_S, return_inverse=True)
    has = has_SK.double()
    weight_SK = has / _sums(has, rollout_S).clamp_min(1)
    count_SK = _sums(weight_SK, group_S).round().clamp_min(1)
    known_SK = torch.where(has_SK, return_SK, torch.inf)
    group_SK = group_S[:, None].expand_as(return_SK)
    lowest_SK = torch.full_like(return_SK, torch.inf).scatter_reduce(0, group_SK, known_SK, "amin")[group_S]
    above_SK = torch.where(has_SK, return_SK - lowest_SK, 0.0)
    centred_SK = above_SK - _sums(weight_SK * above_SK, group_S) / count_SK
    if not divides:
        return centred_SK
    squares_SK = _sums(weight_SK * centred_SK.square(), group_S)
    return centred_SK / ((squares_SK / (count_SK - 1).clamp_min(1)).sqrt() + EPSILON)


def _sums(values_SK: torch.Tensor, index_S: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values_SK).index_add(0, index_S, values_SK)[index_S]
