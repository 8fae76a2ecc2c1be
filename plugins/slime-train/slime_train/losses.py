"""Losses per token; masking and reduction are the trainer's.

Example:

    GspoLoss(GspoSettings(eps_clip=3e-4))(batch).loss_T       # [T], batch a LossInput
"""

from dataclasses import replace

import torch

from slime_core.roles import LossInput, LossOutput
from slime_train.sequences import masked_mean
from slime_train.settings import CispoSettings, ClippedSettings, GspoSettings, PolicyGradientSettings

ZERO_WITHOUT_ADVANTAGE = frozenset({"pg_loss", "pg_clipfrac", "opsm_clipfrac"})
"""Metrics to which a token without an advantage adds nothing."""


class PolicyLoss:
    """PPO's clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, equation 7), with two extensions.

    r = exp(logp - logp_old); loss = max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A).
    A higher upper clip is DAPO's clip-higher (Yu et al. 2025, arXiv:2503.14476, section 3.1); `eps_clip_c` bounds the
    loss at negative advantages by -c A (dual clip, Ye et al. 2020, arXiv:1912.09729, equation 5).
    """

    def __init__(self, settings: ClippedSettings) -> None:
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac, ppo_kl, entropy_loss."""
        return _clipped(batch, batch.log_probs_T - batch.old_log_probs_T, self._settings)


class GspoLoss:
    """GSPO, the clipped surrogate of sequences (Zheng et al. 2025, arXiv:2507.18071, equations 5 and 7).

    s = exp(mean over the sample's trained tokens of logp - logp_old), one ratio per sample, in place of `PolicyLoss`'s
    ratio of each token. Its gradient reaches every trained token of the sample, so that the mean over a sample's
    tokens, the default reduction, is the paper's objective. Sequence ratios move far less than token ratios: the clips
    default to the paper's 3e-4 and 4e-4 (section 5.1).
    """

    def __init__(self, settings: GspoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac, ppo_kl (of the sequence), entropy_loss."""
        difference_T = batch.log_probs_T - batch.old_log_probs_T
        mean_S = masked_mean(difference_T, batch.loss_mask_T, batch.sample_index_T)
        return _clipped(batch, mean_S[batch.sample_index_T], self._settings)


class CispoLoss:
    """CISPO (MiniMax 2025, arXiv:2506.13585, equations 4 and 5): the clipped ratio is a constant weight.

    loss = -sg(clip(r, 1 - eps_clip, 1 + eps_clip_high)) A logp, sg stopping the gradient: a clipped token still learns.
    """

    def __init__(self, settings: CispoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac, ppo_kl, entropy_loss."""
        difference_T = (batch.log_probs_T - batch.old_log_probs_T).detach()
        ratio_T = difference_T.exp()
        weight_T = ratio_T.clamp(1 - self._settings.eps_clip, 1 + self._settings.high)
        loss_T = -weight_T * batch.advantages_T * batch.log_probs_T
        output = policy_gradient(batch, loss_T, difference_T, self._settings, (weight_T != ratio_T).to(loss_T.dtype))
        # Here a ratio is clipped at any advantage, so skipped tokens of zero advantage have an unknown clip fraction.
        return replace(output, zero_without_advantage=output.zero_without_advantage - {"pg_clipfrac"})


class SftLoss:
    """Negative log-likelihood of the response; ignores advantages and old log-probs."""

    def __call__(self, batch: LossInput) -> LossOutput:
        """Negative log-likelihood [T], in nats."""
        return LossOutput(-batch.log_probs_T, {"entropy_loss": batch.entropy_T})


def off_policy_sequences(batch: LossInput, delta: float) -> torch.Tensor:
    """1 [T] where a sample of negative advantage has drifted from its sampler, else 0 (no gradient).

    DeepSeek-AI 2025, DeepSeek-V3.2, arXiv:2512.02556, equation 9: such a sample has
    mean over its trained tokens of (logp_rollout - logp) > delta, in nats.
    """
    drift_T = (batch.rollout_log_probs_T - batch.log_probs_T).detach()
    drift_S = masked_mean(drift_T, batch.loss_mask_T, batch.sample_index_T)
    return ((batch.advantages_T < 0) & (drift_S > delta)[batch.sample_index_T]).to(drift_T.dtype)


def _clipped(batch: LossInput, difference_T: torch.Tensor, settings: ClippedSettings) -> LossOutput:
    ratio_T = difference_T.exp()
    plain_T = -ratio_T * batch.advantages_T
    clipped_T = -ratio_T.clamp(1 - settings.eps_clip, 1 + settings.high) * batch.advantages_T
    loss_T = torch.maximum(plain_T, clipped_T)
    if settings.eps_clip_c is not None:
        bounded_T = torch.minimum(loss_T, -settings.eps_clip_c * batch.advantages_T)
        loss_T = torch.where(batch.advantages_T < 0, bounded_T, loss_T)
    return policy_gradient(batch, loss_T, difference_T, settings, (clipped_T > plain_T).to(loss_T.dtype))


def policy_gradient(
    batch: LossInput,
    loss_T: torch.Tensor,
    difference_T: torch.Tensor,
    settings: PolicyGradientSettings,
    clipped_T: torch.Tensor | None = None,
) -> LossOutput:
    """Complete a policy-gradient loss with off-policy sequence masking, entropy bonus and metrics.

    Args:
        batch: the loss input.
        loss_T: the loss of each token [T], 0 where its advantage is 0.
        difference_T: log of the loss's ratio, nats [T]; its negative is the metric `ppo_kl`.
        settings: the loss's own, which extend `PolicyGradientSettings`.
        clipped_T: 1 where a bound was met, else 0 [T], the metric `pg_clipfrac`; None for a loss without bounds.
    """
    clipped = {} if clipped_T is None else {"pg_clipfrac": clipped_T}
    metrics = {**clipped, "ppo_kl": -difference_T, "entropy_loss": batch.entropy_T}
    if settings.use_opsm:
        metrics["opsm_clipfrac"] = off_policy_sequences(batch, settings.opsm_delta)
        loss_T = loss_T * (1 - metrics["opsm_clipfrac"])
    bonus_T = -settings.entropy_coef * batch.entropy_T if settings.entropy_coef else None
    return LossOutput(loss_T, {"pg_loss": loss_T, **metrics}, bonus_T, ZERO_WITHOUT_ADVANTAGE & {"pg_loss", *metrics})


def value_loss(
    values_T: torch.Tensor, old_values_T: torch.Tensor, returns_T: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The critic's loss: a clipped squared error [T], and 1 where the value has moved further than `clip` [T].

    Masking and reduction are the trainer's.

    loss = max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2): past the clip, moving closer to R
    no longer lowers the loss. As in the reference implementation of PPO (Engstrom et al. 2020, arXiv:2005.12729,
    section 3, "value function clipping") and, without its factor of a half, as in slime.

    Args:
        values_T: under the weights being trained; they carry the gradient.
        old_values_T: under the weights before the rollout's training.
        returns_T: their targets.
        clip: in units of reward.
    """
    moved_T = values_T - old_values_T
    clipped_T = old_values_T + moved_T.clamp(-clip, clip)
    loss_T = torch.maximum((values_T - returns_T).square(), (clipped_T - returns_T).square())
    return loss_T, (moved_T.abs() > clip).to(loss_T.dtype)
