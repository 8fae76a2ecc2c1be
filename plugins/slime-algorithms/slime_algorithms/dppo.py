"""DppoLoss: a trust region on probabilities instead of a clip on their ratio.

Example:

    DppoLoss(DppoSettings(divergence=Divergence.KL))(batch).loss_T       # [T], batch a LossInput
"""

import torch

from slime_algorithms.settings import Divergence, DppoSettings
from slime_core.roles import LossInput, LossOutput
from slime_train import policy_gradient

MIN_PROB = 1e-12
"""Lower bound on the probability of all other tokens, to keep its logarithm finite."""


class DppoLoss:
    """DPPO with the binary approximation (Qi et al. 2026, arXiv:2602.04879).

    loss = -M r A, r = exp(logp - logp_old). mu is the sampler's probability of a token, pi the policy's. M = 0 where
    the step would move pi further from mu (A > 0 and pi > mu, or A < 0 and pi < mu) and the divergence exceeds delta;
    else M = 1. The divergence is over the two outcomes "this token" and "another":

        tv    |mu - pi|
        kl    mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi))

    Clipping the ratio stops rare tokens early and frequent tokens late; the divergence measures how far a step changes
    the distribution. r is at most `ratio_bound`.
    """

    def __init__(self, settings: DppoSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac (the share of M = 0), ppo_kl, entropy_loss."""
        difference_T = batch.log_probs_T - batch.old_log_probs_T
        weight_T = difference_T.detach().exp().clamp_max(self._settings.ratio_bound)
        # The value is -weight A and the gradient -weight A grad(logp). Below the bound that is the gradient of -r A.
        loss_T = -weight_T * batch.advantages_T * (1 + difference_T - difference_T.detach())
        leaves_T = (batch.log_probs_T.detach() - batch.rollout_log_probs_T) * batch.advantages_T > 0
        masked_T = (leaves_T & (self._divergence(batch) > self._settings.limit)).to(loss_T.dtype)
        return policy_gradient(batch, loss_T * (1 - masked_T), difference_T, self._settings, masked_T)

    def _divergence(self, batch: LossInput) -> torch.Tensor:
        """Divergence of the policy from the sampler [T], in float64, without a gradient."""
        sampler_T, policy_T = batch.rollout_log_probs_T.double(), batch.log_probs_T.detach().double()
        if self._settings.divergence is Divergence.TV:
            return (sampler_T.exp() - policy_T.exp()).abs()
        sampler_rest_T, policy_rest_T = _complement(sampler_T), _complement(policy_T)
        token_T = sampler_T.exp() * (sampler_T - policy_T)
        return token_T + sampler_rest_T * (sampler_rest_T.log() - policy_rest_T.log())


def _complement(log_prob_T: torch.Tensor) -> torch.Tensor:
    """Probability of all other tokens [T]."""
    return (-torch.expm1(log_prob_T)).clamp_min(MIN_PROB)
