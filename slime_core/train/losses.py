"""Losses per token; masking and reduction are the trainer's."""

import torch

from slime_core.roles import LossInput, LossOutput
from slime_core.train.settings import PolicyLossSettings


class PolicyLoss:
    """PPO's clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, equation 7), with two extensions.

    r = exp(logp - logp_old); loss = max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A).
    A higher upper clip is DAPO's clip-higher (Yu et al. 2025, arXiv:2503.14476, section 3.1); `eps_clip_c` bounds the
    loss at negative advantages by -c A (dual clip, Ye et al. 2020, arXiv:1912.09729, equation 5).
    """

    def __init__(self, settings: PolicyLossSettings) -> None:
        """Take the settings."""
        self._low = settings.eps_clip
        self._high = settings.eps_clip if settings.eps_clip_high is None else settings.eps_clip_high
        self._dual = settings.eps_clip_c

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac, ppo_kl, entropy_loss."""
        difference_T = batch.log_probs_T - batch.old_log_probs_T
        ratio_T = difference_T.exp()
        plain_T = -ratio_T * batch.advantages_T
        clipped_T = -ratio_T.clamp(1 - self._low, 1 + self._high) * batch.advantages_T
        loss_T = torch.maximum(plain_T, clipped_T)
        if self._dual is not None:
            bounded_T = torch.minimum(loss_T, -self._dual * batch.advantages_T)
            loss_T = torch.where(batch.advantages_T < 0, bounded_T, loss_T)
        metrics = {
            "pg_loss": loss_T,
            "pg_clipfrac": (clipped_T > plain_T).float(),
            "ppo_kl": -difference_T,
            "entropy_loss": batch.entropy_T,
        }
        return LossOutput(loss_T, metrics)


class SftLoss:
    """Negative log-likelihood of the response; advantages and old log-probs are not looked at."""

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T]."""
        return LossOutput(-batch.log_probs_T, {"entropy_loss": batch.entropy_T})
