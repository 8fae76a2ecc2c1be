"""SapoLoss: a soft gate of the ratio in place of a clip.

Example:

    SapoLoss(SapoSettings())(batch).loss_T       # [T], batch a LossInput
"""

import torch

from slime_algorithms.settings import SapoSettings
from slime_core.roles import LossInput, LossOutput
from slime_train import policy_gradient


class SapoLoss:
    """SAPO (Gao et al. 2025, arXiv:2511.20347): a soft gate of the ratio.

    f(r) = 4 / tau sigmoid(tau (r - 1)), loss = -f(r) A, with r = exp(logp - logp_old) and tau by the sign of A. The
    gradient of r A is scaled by 4 p (1 - p) with p the sigmoid: 1 at r = 1, less on either side, never 0.
    The mean over a sample's tokens, the default reduction, is the paper's objective.
    """

    def __init__(self, settings: SapoSettings) -> None:
        """Take the settings."""
        self._settings = settings

    def __call__(self, batch: LossInput) -> LossOutput:
        """Loss [T] and its metrics: pg_loss, ppo_kl, entropy_loss."""
        difference_T = batch.log_probs_T - batch.old_log_probs_T
        tau_T = torch.full_like(batch.advantages_T, self._settings.tau_neg)
        tau_T = tau_T.masked_fill(batch.advantages_T > 0, self._settings.tau_pos)
        gate_T = torch.sigmoid(tau_T * (difference_T.exp() - 1))
        return policy_gradient(batch, -4 / tau_T * gate_T * batch.advantages_T, difference_T, self._settings)
