"""GmpoLoss: one ratio per sample, the geometric mean of its clipped token ratios.

Example:

    GmpoLoss(GmpoSettings(eps_clip=0.4))(batch).loss_T       # [T], batch a LossInput
"""

import torch

from slime_algorithms.settings import GmpoSettings
from slime_core.roles import LossInput, LossOutput
from slime_train import masked_mean, policy_gradient


class GmpoLoss:
    """GMPO (Zhao et al. 2025, arXiv:2507.20673).

    d = logp - logp_old of a token, d' = min(d, eps_clip_high) where A > 0 and max(d, -eps_clip) where A < 0,
    s = exp(mean over the sample's trained tokens of d'), loss = -s A. GSPO clips the mean. GMPO clips each token, so
    one outlier cannot dominate or remove a sample. The default reduction, the mean over a sample's tokens, gives the
    paper's objective.
    """

    def __init__(self, settings: GmpoSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, pg_clipfrac, ppo_kl, entropy_loss."""
        difference_T = batch.log_probs_T - batch.old_log_probs_T
        bounded_T = torch.where(
            batch.advantages_T > 0,
            difference_T.clamp_max(self._settings.high),
            difference_T.clamp_min(-self._settings.eps_clip),
        )
        mean_S = masked_mean(bounded_T, batch.loss_mask_T, batch.sample_index_T)
        loss_T = -mean_S.exp()[batch.sample_index_T] * batch.advantages_T
        clipped_T = (bounded_T != difference_T) & (batch.advantages_T != 0)
        return policy_gradient(batch, loss_T, difference_T, self._settings, clipped_T.to(loss_T.dtype))
