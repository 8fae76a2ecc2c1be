"""GDPO: each part of the reward relative to its group, weighed, added up and whitened.

Example:

    Gdpo(GdpoSettings(reward_weights={"math": 1.0, "form": 0.5}))(batch)      # [T], batch an AdvantageInput
"""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pydantic import Field

from slime_core.roles import AdvantageInput, AdvantageSpec, Number
from slime_train.normalization import EPSILON, EstimatorSettings, of_tokens

if TYPE_CHECKING:
    import torch


class GdpoSettings(EstimatorSettings):
    """`[advantage.gdpo]`."""

    reward_weights: dict[str, Number] = Field(
        min_length=1,
        description="Weight of each part of the reward: names of rewards, NAME/COMPONENT, or keys of a dict.",
    )
    normalize_advantages: bool = Field(True, description="Whiten them over all trained tokens of the rollout.")


class Gdpo:
    """GDPO (Liu et al. 2026, arXiv:2601.05242): each part of the reward relative to its group, then added up.

    A_i = sum over parts k of w_k (r_ik - mean(r_k)) / (std(r_k) + 1e-6), each as in `Grpo`, then `whiten` over the
    rollout. A part's influence does not depend on its scale, and samples of equal total but different parts get
    different advantages.
    """

    def __init__(self, settings: GdpoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in standard deviations: every token of a sample has its sample's."""
        import torch

        from slime_train.groups import Groups

        advantage_S = torch.zeros_like(batch.rewards_S, dtype=torch.float64)
        for key, weight in self._settings.reward_weights.items():
            groups = Groups.of(replace(batch, rewards_S=batch.columns_S[f"reward/{key}"]))
            advantage_S = advantage_S + weight * groups.centred_S / (groups.deviation() + EPSILON)
        return of_tokens(batch, advantage_S, self._settings)


SPEC = AdvantageSpec(
    "gdpo",
    lambda settings, setup: Gdpo(settings),
    GdpoSettings,
    "Each part of the reward relative to its group, weighed and whitened (GDPO)",
    reward_keys=lambda settings: tuple(cast(GdpoSettings, settings).reward_weights),
    compares_samples=lambda settings: True,
    flat_keys=("normalize_advantages",),
)
