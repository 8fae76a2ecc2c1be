"""KL terms: how far the policy is from another model, estimated from the one token that was drawn at each place.

Example:

    penalty_T = kl_coef * approximate_kl(log_probs_T, ref_log_probs_T, "k1") * loss_mask_T
"""

from typing import assert_never

import torch

from slime_core.roles import KlType, Reference

LOW_VAR_LIMIT = 10.0
"""Nats within which `low_var_kl` is held, as slime has it."""

_PLAIN: dict[KlType, KlType] = {"k1+": "k1", "k3+": "k3", "low_var_kl+": "low_var_kl"}
"""Whose value an estimator with the gradient of k2 has."""


def approximate_kl(log_probs_T: torch.Tensor, other_log_probs_T: torch.Tensor, kind: KlType) -> torch.Tensor:
    """Estimates of KL(policy || other) [T] in nats, of tokens that the policy drew.

    With d = logp - other_logp (Schulman 2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html):

    - k1: d, unbiased;
    - k2: d^2 / 2, biased, never negative;
    - k3: exp(-d) - 1 + d, unbiased and never negative;
    - low_var_kl: k3 held to [-10, 10]; where it is held, there is no gradient;
    - k1+, k3+, low_var_kl+: the value of k1, k3, low_var_kl with the gradient of k2, which is d times that of
      logp (verl's straight-through estimators); of k1+ and k3+, value and gradient are both unbiased.

    As a loss, k1's gradient is that of logp, which is 0 in expectation, and k3's is not that of the KL unless it is
    weighed by the policy's ratio (`kl_loss`); k2's is.
    """
    difference_T = log_probs_T - other_log_probs_T
    match kind:
        case "k1":
            return difference_T
        case "k2":
            return difference_T.square() / 2
        case "k3":
            return (-difference_T).expm1() + difference_T
        case "low_var_kl":
            return ((-difference_T).expm1() + difference_T).clamp(-LOW_VAR_LIMIT, LOW_VAR_LIMIT)
        case "k1+" | "k3+" | "low_var_kl+":
            value_T = approximate_kl(log_probs_T.detach(), other_log_probs_T, _PLAIN[kind])
            slope_T = difference_T.square() / 2
            return value_T + (slope_T - slope_T.detach())
        case _:
            assert_never(kind)


def kl_loss(
    log_probs_T: torch.Tensor, ref_log_probs_T: torch.Tensor, rollout_log_probs_T: torch.Tensor, reference: Reference
) -> torch.Tensor:
    """The KL of each token to the reference [T] in nats, to be added to its loss, `kl_loss_coef` times.

    GRPO's term (Shao et al. 2024, arXiv:2402.03300, equation 4) with k3. With `use_unbiased_kl` it is weighed by
    exp(logp - rollout_logp), through which the gradient goes too: that makes k3 unbiased, value and gradient, for
    tokens of another sampler (DeepSeek-AI 2025, DeepSeek-V3.2, arXiv:2512.02556, section 3.1). Where the gradient is
    that of k2 (k3+), it is right already, and the ratio is held constant: with it, it would count twice.

    Args:
        log_probs_T: the policy's, which carry the gradient.
        ref_log_probs_T: the reference's.
        rollout_log_probs_T: the sampler's.
        reference: what kind of estimate.
    """
    kl_T = approximate_kl(log_probs_T, ref_log_probs_T, reference.kl_loss_type)
    if not reference.use_unbiased_kl:
        return kl_T
    moving_T = log_probs_T.detach() if reference.kl_loss_type in _PLAIN else log_probs_T
    return kl_T * (moving_T - rollout_log_probs_T).exp()
