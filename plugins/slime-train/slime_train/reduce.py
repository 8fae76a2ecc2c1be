"""Reduction: from a loss per token to the loss of a whole step, which no single rank or micro-batch holds.

Example:

    weight_T = token_weights(mask_T, sample_T, importance_S, rollout_S, step_tokens=900, step_samples=64,
                             per_token=False, constant_length=None)
    loss = (loss_T * weight_T).sum()        # added up over micro-batches and ranks, this is the step's loss
"""

import torch


def token_weights(
    loss_mask_T: torch.Tensor,
    sample_index_T: torch.Tensor,
    importance_S: torch.Tensor,
    rollout_index_S: torch.Tensor,
    *,
    step_tokens: int,
    step_samples: int,
    per_token: bool,
    constant_length: int | None,
) -> torch.Tensor:
    """The weight [T] of each token in the step's loss; 0 where the mask is 0.

    With mask m, importance w and n_r = the sum of m over all samples of rollout r, which is one sample unless one
    execution fanned out:

    - per token (`calculate_per_token_loss`): w_s m_t / step_tokens, the mean over all trained tokens of the step, as
      DAPO has it (Yu et al. 2025, arXiv:2503.14476, equation 8);
    - constant (`constant_loss_length` L): w_s m_t / L / step_samples, without a bias by length, as Dr.GRPO has it (Liu
      et al. 2025, arXiv:2503.20783, section 3.2);
    - else: w_s m_t / n_r / step_samples, the mean over rollouts of each one's mean over its trained tokens, as GRPO has
      it (Shao et al. 2024, arXiv:2402.03300, equation 3).

    Denominators are of whole rollouts and of the whole step: however these samples are cut into micro-batches
    afterwards, and the step into ranks, the parts add up to it.

    Args:
        loss_mask_T: 1 where trained on, float32 [T].
        sample_index_T: sample of each token, int64 [T].
        importance_S: importance weight of each sample, float32 [S].
        rollout_index_S: rollout of each sample, int64 [S]; all samples of a rollout are among these.
        step_tokens: trained tokens of the whole step, over all ranks.
        step_samples: rollouts of the whole step with a trained token, over all ranks.
        per_token: whether it is the mean over tokens.
        constant_length: L in tokens, or None.
    """
    weighted_T = loss_mask_T * importance_S[sample_index_T]
    if per_token:
        return weighted_T / max(1, step_tokens)
    if constant_length is not None:
        return weighted_T / constant_length / max(1, step_samples)
    _, rollout_S = torch.unique(rollout_index_S, return_inverse=True)
    rollout_T = rollout_S[sample_index_T]
    trained_R = torch.zeros_like(importance_S).index_add_(0, rollout_T, loss_mask_T)
    return weighted_T / trained_R.clamp_min(1)[rollout_T] / max(1, step_samples)
