"""Reduction: from a loss per token to the loss of a whole step, which no single rank or micro-batch holds.

Example:

    weight_T = token_weights(mask_T, sample_T, importance_S, step_tokens=900, step_samples=64, per_token=False)
    loss = (loss_T * weight_T).sum()        # added up over micro-batches and ranks, this is the step's loss
"""

import torch


def token_weights(
    loss_mask_T: torch.Tensor,
    sample_index_T: torch.Tensor,
    importance_S: torch.Tensor,
    *,
    step_tokens: int,
    step_samples: int,
    per_token: bool,
) -> torch.Tensor:
    """The weight [T] of each token in the step's loss; 0 where the mask is 0.

    With mask m, importance w and n_s = the sum of m over sample s:

    - per token (`calculate_per_token_loss`): w_s m_t / step_tokens, the mean over all trained tokens of the step;
    - else: w_s m_t / n_s / step_samples, the mean over samples of each sample's mean over its trained tokens.

    Args:
        loss_mask_T: 1 where trained on, float32 [T].
        sample_index_T: sample of each token, int64 [T].
        importance_S: importance weight of each sample, float32 [S].
        step_tokens: trained tokens of the whole step, over all ranks.
        step_samples: samples of the whole step with a trained token, over all ranks.
        per_token: which of the two means.
    """
    weighted_T = loss_mask_T * importance_S[sample_index_T]
    if per_token:
        return weighted_T / max(1, step_tokens)
    trained_S = torch.zeros_like(importance_S).index_add_(0, sample_index_T, loss_mask_T)
    return weighted_T / trained_S.clamp_min(1)[sample_index_T] / max(1, step_samples)
