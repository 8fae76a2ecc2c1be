"""Sums and means over the trained tokens of each sample of a ragged batch, in float64 and back.

Example:

    masked_mean(entropy_T, loss_mask_T, sample_index_T)[sample_index_T]     # [T], each token its sample's
"""

import torch


def masked_sum(values_T: torch.Tensor, mask_T: torch.Tensor, sample_index_T: torch.Tensor) -> torch.Tensor:
    """Sum [S] over each sample's tokens of mask 1; S is the largest sample number and one; 0 without such tokens."""
    samples = int(sample_index_T.max()) + 1 if len(sample_index_T) else 0
    masked_T = values_T.double() * mask_T.double()
    return masked_T.new_zeros(samples).index_add(0, sample_index_T, masked_T).to(values_T.dtype)


def masked_mean(values_T: torch.Tensor, mask_T: torch.Tensor, sample_index_T: torch.Tensor) -> torch.Tensor:
    """Mean [S] over each sample's tokens of mask 1; 0 for a sample without such tokens."""
    count_S = masked_sum(torch.ones_like(values_T), mask_T, sample_index_T)
    return masked_sum(values_T, mask_T, sample_index_T) / count_S.clamp_min(1)
