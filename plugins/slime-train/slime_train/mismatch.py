"""Mismatch: how far the trainer's log-probs are from the sampler's, reported by every step.

Example:

    sums = {name: (values_T * mask_T).sum() for name, values_T in mismatch(log_probs_T, rollout_log_probs_T).items()}
"""

import torch

QUANTILES = {"min": 0.0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1.0}
"""Which quantiles of the ratio are reported, by the end of their name."""


def mismatch(log_probs_T: torch.Tensor, rollout_log_probs_T: torch.Tensor) -> dict[str, torch.Tensor]:
    """What to average over trained tokens, [T] each, in nats.

    With d = logp - rollout_logp, of tokens that the sampler drew:

    - train_rollout_logprob_abs_diff: |d|;
    - train_rollout_k1: -d, unbiased for KL(sampler || trainer);
    - train_rollout_k3: exp(d) - 1 - d, unbiased as well and never negative.

    Estimators k1 and k3 of Schulman 2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html.
    """
    difference_T = log_probs_T - rollout_log_probs_T
    return {
        "train_rollout_logprob_abs_diff": difference_T.abs(),
        "train_rollout_k1": -difference_T,
        "train_rollout_k3": difference_T.expm1() - difference_T,
    }


def mismatch_extremes(difference_T: torch.Tensor) -> dict[str, float]:
    """Extremes of d over the trained tokens [T] of all ranks together; empty where there are no tokens.

    train_rollout_logprob_abs_diff_max is the largest |d| in nats; train_rollout_ratio_min, _p01, _p50, _p99 and _max
    are quantiles of exp(d), by nearest rank. Where sampler and trainer agree, it is 0 and they are 1.
    """
    if not len(difference_T):
        return {}
    sorted_T = difference_T.double().sort().values
    ratio_T, last = sorted_T.exp(), len(sorted_T) - 1
    quantiles = {
        f"train_rollout_ratio_{name}": float(ratio_T[round(share * last)]) for name, share in QUANTILES.items()
    }
    return {"train_rollout_logprob_abs_diff_max": float(sorted_T[[0, -1]].abs().max()), **quantiles}
