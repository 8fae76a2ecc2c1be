"""SapoLoss: a soft gate on the ratio instead of a clip.

Example:

    SapoLoss(SapoSettings())(batch).loss_T       # [T], batch a LossInput
"""

import torch

from slime_algorithms.settings import SapoSettings
from slime_core.roles import LossInput, LossOutput
from slime_train import policy_gradient


class SapoLoss:
    """SAPO (Gao et al. 2025, arXiv:2511.20347): a soft gate on the ratio.

    f(r) = 4 / tau sigmoid(tau (r - 1)), loss = -f(r) A, with r = exp(logp - logp_old) and tau chosen by the sign of A.
    The gate scales the gradient of r A by 4 p (1 - p), where p is the sigmoid. The factor is 1 at r = 1, smaller on
    either side and never 0. The default reduction, the mean over a sample's tokens, gives the paper's objective.
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
