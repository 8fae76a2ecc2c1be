"""GRPO: rewards relative to their group.

Example:

    Grpo(GrpoSettings())(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING, cast

from pydantic import Field

from slime_core.roles import Advantage, AdvantageInput, AdvantageSpec, Setup
from slime_core.train.estimators._whitened import EPSILON, EstimatorSettings, of_tokens

if TYPE_CHECKING:
    import torch


class GrpoSettings(EstimatorSettings):
    """`[advantage.grpo]`, slime's flags."""

    rewards_normalization: bool = Field(True, description="Subtract the group's mean reward.")
    grpo_std_normalization: bool = Field(True, description="Divide by the group's standard deviation (off: Dr.GRPO).")


class Grpo:
    """GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2): rewards relative to their group.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6), with the unbiased standard deviation, as slime has it. Without the
    division it is Dr.GRPO's (Liu et al. 2025, arXiv:2503.20783, section 3.2). A group of one has advantage 0.
    """

    def __init__(self, settings: GrpoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in units of reward or of its standard deviation: every token of a sample has its sample's."""
        from slime_core.train.groups import Groups

        if not self._settings.rewards_normalization:
            return of_tokens(batch, batch.rewards_S, self._settings)
        groups = Groups.of(batch)
        advantage_S = groups.centred_S
        if self._settings.grpo_std_normalization:
            advantage_S = advantage_S / (groups.deviation() + EPSILON)
        return of_tokens(batch, advantage_S, self._settings)


def _grpo(settings: GrpoSettings, setup: Setup) -> Advantage:
    return Grpo(settings)


SPEC = AdvantageSpec(
    "grpo",
    _grpo,
    GrpoSettings,
    "Rewards relative to their group (GRPO, Dr.GRPO)",
    compares_samples=lambda settings: cast(GrpoSettings, settings).rewards_normalization,
    flat_keys=tuple(GrpoSettings.model_fields),
)
