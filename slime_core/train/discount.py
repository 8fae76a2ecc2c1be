"""Discounted sums over the rest of each sample of a ragged batch, in as many operations as its longest has doublings.

Example:

    discounted_sums(rewards_T, sample_index_T, gamma)       # [T], returns
"""

import torch


def discounted_sums(values_T: torch.Tensor, sample_index_T: torch.Tensor, discount: float) -> torch.Tensor:
    """Of each token t, the sum of discount^(k - t) values_k over its sample's tokens k from t on [T].

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
