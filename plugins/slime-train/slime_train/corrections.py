"""Off-policy corrections for tokens whose log-probs differ between sampler and trainer.

Example:

    Tis(TisSettings())(CorrectionInput(log_probs_T, rollout_log_probs_T, loss_mask_T, sample_index_T)).weights_T
"""

import math
from collections.abc import Mapping

import torch

from slime_core.roles import CorrectionInput, CorrectionOutput
from slime_train.sequences import masked_mean, masked_sum
from slime_train.settings import Divergence, IcepopSettings, MisSettings, TisSettings


class Tis:
    """Truncated importance sampling (Ionides 2008, Journal of Computational and Graphical Statistics 17(2), eq. 6).

    w_t = clamp(exp(logp_t - rollout_logp_t), tis_clip_low, tis_clip), one weight per token, as in slime; applied to
    the difference between an inference engine and a trainer by Yao et al. 2025, "Your Efficient RL Framework Secretly
    Brings You Off-Policy RL Training".
    """

    def __init__(self, settings: TisSettings) -> None:
        self._settings = settings

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        """Weights [T] and metrics: tis (the ratio), tis_clipfrac (truncated tokens), tis_abs (its distance from 1)."""
        ratio_T = (batch.log_probs_T - batch.rollout_log_probs_T).exp()
        weights_T = ratio_T.clamp(self._settings.tis_clip_low, self._settings.tis_clip)
        return CorrectionOutput(weights_T, batch.loss_mask_T, _metrics(ratio_T, weights_T))


class Icepop:
    """IcePop (Ling Team 2025, Every Step Evolves, arXiv:2510.18855): weights out of bounds are 0.

    w_t = r_t where tis_clip_low <= r_t <= tis_clip, else 0, with r_t = exp(logp_t - rollout_logp_t): what is truncated
    by `Tis` has no gradient here. Denominators stay as they were.
    """

    def __init__(self, settings: IcepopSettings) -> None:
        self._settings = settings

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        """Weights [T] and the metrics of `Tis`, tis_clipfrac the tokens whose weight is 0."""
        ratio_T = (batch.log_probs_T - batch.rollout_log_probs_T).exp()
        inside_T = (ratio_T >= self._settings.tis_clip_low) & (ratio_T <= self._settings.tis_clip)
        weights_T = torch.where(inside_T, ratio_T, 0.0)
        return CorrectionOutput(weights_T, batch.loss_mask_T, _metrics(ratio_T, weights_T))


class Mis:
    """Importance sampling by token, sequence or its geometric mean, with rejection and veto (slime's mis.py).

    With d_t = logp_t - rollout_logp_t, log r is d_t (`token`), the sum of d over the sample's trained tokens
    (`sequence`, unbiased, of high variance) or their mean (`geometric`), one ratio per sample, clamped to 20 nats. Then

    - `truncate`: w = min(r, upper), as `Tis`, on any level (Ionides 2008, equation 6);
    - `clip`: w = clamp(r, lower, upper);
    - `mask`: w = r, and tokens or whole samples outside of [lower, upper] are excluded from the loss (rejection
      sampling; Li et al. 2025, "When Speed Kills Stability", section "Masked importance sampling");
    - `none`: w = 1.

    `rollout_rs` also rejects tokens or samples too far from their sampler, by separate measures and bounds (verl's
    rollout rejection, see `within`): for example weights by token and rejection by a sample's geometric mean.
    `mis_veto_threshold` also rejects every sample with a trained token of exp(d_t) below it.
    """

    def __init__(self, settings: MisSettings) -> None:
        self._settings = settings

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        """Weights and mask [T]; metrics: the metrics of `Tis`, and shares of tokens.

        These are mis_masked, mis_vetoed and, by rollout_rs, rollout_rs_masked_fraction.
        """
        settings = self._settings
        difference_T = batch.log_probs_T - batch.rollout_log_probs_T
        ratio_T = self._leveled(difference_T, batch).clamp(-SAFETY_NATS, SAFETY_NATS).exp()
        weights_T, kept_T = ratio_T, torch.ones_like(ratio_T)
        if settings.mis_mode == "truncate":
            weights_T = ratio_T.clamp(max=settings.mis_upper_bound)
        elif settings.mis_mode == "clip":
            weights_T = ratio_T.clamp(settings.lower, settings.mis_upper_bound)
        elif settings.mis_mode == "none":
            weights_T = torch.ones_like(ratio_T)
        else:
            kept_T = ((ratio_T >= settings.lower) & (ratio_T <= settings.mis_upper_bound)).to(ratio_T.dtype)
        metrics = {**_metrics(ratio_T, weights_T * kept_T), "mis_masked": 1 - kept_T}
        if settings.rollout_rs:
            within_T = within(batch, settings.rejection)
            metrics["rollout_rs_masked_fraction"] = 1 - within_T
            kept_T = kept_T * within_T
        if settings.mis_veto_threshold is not None:
            low_T = difference_T < math.log(settings.mis_veto_threshold)
            vetoed_S = masked_sum(low_T, batch.loss_mask_T, batch.sample_index_T) > 0
            metrics["mis_vetoed"] = vetoed_S.to(ratio_T.dtype)[batch.sample_index_T]
            kept_T = kept_T * (1 - metrics["mis_vetoed"])
        return CorrectionOutput(weights_T, batch.loss_mask_T * kept_T, metrics)

    def _leveled(self, difference_T: torch.Tensor, batch: CorrectionInput) -> torch.Tensor:
        """Log of the ratio of each token [T]."""
        match self._settings.mis_level:
            case "token":
                return difference_T
            case "sequence":
                of_samples = masked_sum
            case "geometric":
                of_samples = masked_mean
        return of_samples(difference_T, batch.loss_mask_T, batch.sample_index_T)[batch.sample_index_T]


def _metrics(ratio_T: torch.Tensor, weights_T: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "tis": ratio_T,
        "tis_clipfrac": (weights_T != ratio_T).to(ratio_T.dtype),
        "tis_abs": (ratio_T - 1).abs(),
    }


SAFETY_NATS = 20.0
"""Log-ratios are clamped to this, as in slime: the product over a long sample would be infinite or 0."""


def within(batch: CorrectionInput, bounds: Mapping[Divergence, tuple[float, float]]) -> torch.Tensor:
    """1 [T] where every divergence is within its bounds (inclusive), else 0 (verl's rollout rejection).

    With d_t = logp_t - rollout_logp_t, clamped to 20 nats, of one token or as the sum, the mean or the largest of its
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
