"""Off-policy corrections: what becomes of a token whose sampler and trainer disagree.

Example:

    Tis(TisSettings())(CorrectionInput(log_probs_T, rollout_log_probs_T, loss_mask_T, sample_index_T)).weights_T
"""

from slime_core.roles import CorrectionInput, CorrectionOutput
from slime_core.train.settings import TisSettings


class Tis:
    """Truncated importance sampling (Ionides 2008, Journal of Computational and Graphical Statistics 17(2), eq. 6).

    w_t = clamp(exp(logp_t - rollout_logp_t), tis_clip_low, tis_clip), one weight a token, as slime has it; applied to
    the difference between an inference engine and a trainer by Yao et al. 2025, "Your Efficient RL Framework Secretly
    Brings You Off-Policy RL Training".
    """

    def __init__(self, settings: TisSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        """Weights [T] and metrics: tis (the ratio), tis_clipfrac (truncated tokens), tis_abs (its distance from 1)."""
        ratio_T = (batch.log_probs_T - batch.rollout_log_probs_T).exp()
        weights_T = ratio_T.clamp(self._settings.tis_clip_low, self._settings.tis_clip)
        metrics = {
            "tis": ratio_T,
            "tis_clipfrac": (weights_T != ratio_T).float(),
            "tis_abs": (ratio_T - 1).abs(),
        }
        return CorrectionOutput(weights_T, batch.loss_mask_T, metrics)
