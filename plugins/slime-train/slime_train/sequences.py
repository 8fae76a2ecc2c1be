"""Sums, means and moments over the trained tokens of a ragged batch, in float64 and back.

Example:

    masked_mean(entropy_T, loss_mask_T, sample_index_T)[sample_index_T]     # [T], each token its sample's
    discounted_sums(rewards_T, sample_index_T, gamma)                       # [T], returns
    whiten(advantage_T, loss_mask_T, batch.sum_over_ranks)                  # [T], over the rollout
"""

from collections.abc import Callable

import torch

EPSILON = 1e-8
"""Added to the variance in `whiten`, as in slime."""


def masked_sum(values_T: torch.Tensor, mask_T: torch.Tensor, sample_index_T: torch.Tensor) -> torch.Tensor:
    """Sum [S] over each sample's tokens of mask 1; S is the largest sample number + 1; 0 without such tokens."""
    samples = int(sample_index_T.max()) + 1 if len(sample_index_T) else 0
    masked_T = values_T.double() * mask_T.double()
    return masked_T.new_zeros(samples).index_add(0, sample_index_T, masked_T).to(values_T.dtype)


def masked_mean(values_T: torch.Tensor, mask_T: torch.Tensor, sample_index_T: torch.Tensor) -> torch.Tensor:
    """Mean [S] over each sample's tokens of mask 1; 0 for a sample without such tokens."""
    count_S = masked_sum(torch.ones_like(values_T), mask_T, sample_index_T)
    return masked_sum(values_T, mask_T, sample_index_T) / count_S.clamp_min(1)


def discounted_sums(values_T: torch.Tensor, sample_index_T: torch.Tensor, discount: float) -> torch.Tensor:
    """For each token t, the sum of discount^(k - t) values_k over its sample's tokens k from t on [T].

    Window doubling: after round i each sum reaches 2^i tokens ahead, and the next adds the one that begins there.

    Args:
        values_T: float [T].
        sample_index_T: sample of each token, int64 [T]; a sample's tokens are neighbours.
        discount: 0 to 1.
    """
    total_T, reach, weight = values_T, 1, discount
    longest = int(torch.unique_consecutive(sample_index_T, return_counts=True)[1].max()) if len(sample_index_T) else 0
    while reach < longest:
        same = sample_index_T[reach:] == sample_index_T[:-reach]
        further_T = torch.where(same, weight * total_T[reach:], 0.0)
        total_T = torch.cat([total_T[:-reach] + further_T, total_T[-reach:]])
        reach, weight = 2 * reach, weight * weight
    return total_T


def whiten(
    values_T: torch.Tensor, mask_T: torch.Tensor, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Values minus their mean, over the root of their unbiased variance plus 1e-8 [T]; moments of tokens of mask 1.

    Advantage normalisation as REINFORCE++ has it (Hu et al. 2025, arXiv:2501.03262, section 3). Computed in float64 and
    in two passes, so that it is the same however the tokens are dealt to ranks, and exactly 0 for equal values.

    Args:
        values_T: this rank's values, float [T].
        mask_T: 1 where trained on, float [T].
        sum_over_ranks: adds up a tensor over the ranks; called twice, also by a rank without tokens.
    """
    exact_T, weight_T = values_T.double(), mask_T.double()
    count, total = sum_over_ranks(torch.stack([weight_T.sum(), (exact_T * weight_T).sum()]))
    centred_T = exact_T - total / count.clamp_min(1)
    squares = sum_over_ranks((centred_T.square() * weight_T).sum())
    whitened_T: torch.Tensor = centred_T * torch.rsqrt(squares / (count - 1).clamp_min(1) + EPSILON)
    return whitened_T.to(values_T.dtype)
