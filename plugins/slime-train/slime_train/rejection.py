"""Rejection: which tokens are too far from their sampler, by a divergence of a token or of its whole sample.

Example:

    kept_T = within(batch, {"seq_mean_k1": (0.99, 1.01), "token_k3": (0.0, 2.0)})      # 1 where trained on [T]
"""

from collections.abc import Mapping

import torch

from slime_core.roles import CorrectionInput
from slime_train.sequences import masked_mean, masked_sum
from slime_train.settings import Divergence

SAFETY_NATS = 20.0
"""Log-ratios beyond this are taken as this, as slime has it: a long sample's product would be infinite or 0."""


def within(batch: CorrectionInput, bounds: Mapping[Divergence, tuple[float, float]]) -> torch.Tensor:
    """1 [T] where every divergence is within its bounds, which belong to it, else 0 (verl's rollout rejection).

    With d_t = logp_t - rollout_logp_t, held to 20 nats, of one token or as the sum, the mean or the largest of its
    sample's trained ones:

    - k1: exp of d_t, of the sum or of the mean: the ratio of the token, of the sequence, or its geometric mean;
    - k2: d_t^2 / 2;
    - k3: exp(d_t) - 1 - d_t, unbiased for KL(sampler || trainer) and never negative.

    Li et al. 2025, "When Speed Kills Stability", of sequences and their geometric mean; estimators k1 to k3 of Schulman
    2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html.
    """
    difference_T = (batch.log_probs_T - batch.rollout_log_probs_T).clamp(-SAFETY_NATS, SAFETY_NATS)
    kept_T = torch.ones_like(difference_T)
    for name, (low, high) in bounds.items():
        level, kind = name.rsplit("_", 1)
        of_tokens_T = _of_tokens(difference_T, kind)
        found_T = of_tokens_T if level == "token" else _of_samples(of_tokens_T, batch, level)[batch.sample_index_T]
        if kind == "k1":
            found_T = found_T.clamp(-SAFETY_NATS, SAFETY_NATS).exp()
        kept_T = kept_T * ((found_T >= low) & (found_T <= high))
    return kept_T


def _of_tokens(difference_T: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "k1":
        return difference_T
    return difference_T.square() / 2 if kind == "k2" else difference_T.expm1() - difference_T


def _of_samples(values_T: torch.Tensor, batch: CorrectionInput, level: str) -> torch.Tensor:
    """The sum, the mean or the largest over each sample's trained tokens [S]; 0 without such tokens."""
    if level == "seq_sum":
        return masked_sum(values_T, batch.loss_mask_T, batch.sample_index_T)
    if level == "seq_mean":
        return masked_mean(values_T, batch.loss_mask_T, batch.sample_index_T)
    samples = int(batch.sample_index_T.max()) + 1 if len(batch.sample_index_T) else 0
    trained_T = torch.where(batch.loss_mask_T > 0, values_T, 0.0)  # neither k2 nor k3 is ever below 0
    return values_T.new_zeros(samples).scatter_reduce(0, batch.sample_index_T, trained_T, "amax")
