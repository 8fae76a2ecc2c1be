"""RLOO: rewards relative to the group's other rollouts.

Example:

    Rloo(EstimatorSettings())(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING

from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import EstimatorSettings, of_tokens

if TYPE_CHECKING:
    import torch


class Rloo:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740, section 2.2): rewards relative to the group's other rollouts.

    A_i = r_i - mean of r_j over the group's other rollouts j. A group of one has advantage 0.
    """

    def __init__(self, settings: EstimatorSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in units of reward: every token of a sample has its sample's."""
        from slime_train.groups import Groups

        return of_tokens(batch, Groups.of(batch).leave_one_out(), self._settings)


SPEC = AdvantageSpec(
    "rloo",
    lambda settings, setup: Rloo(settings),
    EstimatorSettings,
    "Rewards relative to the others of their group (RLOO)",
    compares_samples=lambda settings: True,
    flat_keys=tuple(EstimatorSettings.model_fields),
)
