"""GRPO: rewards relative to their group.

Example:

    Grpo(GrpoSettings())(batch)      # [T], batch an AdvantageInput
"""

from typing import TYPE_CHECKING, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from slime_core.roles import AdvantageInput, AdvantageSpec
from slime_train.normalization import EPSILON, EstimatorSettings, of_tokens

if TYPE_CHECKING:
    import torch


class GrpoSettings(EstimatorSettings):
    """`[advantage.grpo]`, slime's flags."""

    rewards_normalization: bool = Field(True, description="Subtract the group's mean reward.")
    grpo_std_normalization: bool = Field(True, description="Divide by the standard deviation (off: Dr.GRPO).")
    scale_rewards: Literal["group", "batch"] = Field(
        "group", description="Whose standard deviation that is: of each group, or of the whole rollout (Lite PPO)."
    )

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _none_is_another_key(cls, value: object) -> object:
        if isinstance(value, bool) or value == "none":
            raise ValueError('expected "group" or "batch"; not to scale rewards is grpo_std_normalization = false')
        return value

    @model_validator(mode="after")
    def _scale_has_an_effect(self) -> Self:
        if self.scale_rewards != "group" and not (self.rewards_normalization and self.grpo_std_normalization):
            off = "grpo_std_normalization" if self.rewards_normalization else "rewards_normalization"
            raise ValueError(f'scale_rewards = "{self.scale_rewards}" has no effect here: {off} is false')
        if self.scale_rewards != "group" and self.normalize_advantages:
            raise ValueError(
                f'scale_rewards = "{self.scale_rewards}" has no effect here: normalize_advantages scales all of them '
                "again; leave one of the two out"
            )
        return self


class Grpo:
    """GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2): rewards relative to their group.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6), with the unbiased standard deviation, as in slime. Without the
    division it is Dr.GRPO's (Liu et al. 2025, arXiv:2503.20783, section 3.2). A group of one has advantage 0.

    With `scale_rewards = "batch"`, r less the mean of its group is divided by the standard deviation of all rewards of
    the rollout, on all ranks (Lite PPO, Liu et al. 2025, arXiv:2508.08221: group-level mean, batch-level standard
    deviation; TRL's setting of that name): a group of nearly equal rewards gets no large advantages.
    """

    def __init__(self, settings: GrpoSettings) -> None:
        self._settings = settings

    def __call__(self, batch: AdvantageInput) -> "torch.Tensor":
        """Advantages [T], in units of reward or of its standard deviation: every token of a sample has its sample's."""
        from slime_train.groups import Groups

        if not self._settings.rewards_normalization:
            return of_tokens(batch, batch.rewards_S, self._settings)
        groups = Groups.of(batch)
        advantage_S = groups.centred_S
        if self._settings.grpo_std_normalization:
            of_all = self._settings.scale_rewards == "batch"
            deviation = groups.deviation_over_ranks(batch.sum_over_ranks) if of_all else groups.deviation()
            advantage_S = advantage_S / (deviation + EPSILON)
        return of_tokens(batch, advantage_S, self._settings)


SPEC = AdvantageSpec(
    "grpo",
    lambda settings, setup: Grpo(settings),
    GrpoSettings,
    "Rewards relative to their group (GRPO, Dr.GRPO)",
    compares_samples=lambda settings: cast(GrpoSettings, settings).rewards_normalization,
    flat_keys=tuple(GrpoSettings.model_fields),
)
