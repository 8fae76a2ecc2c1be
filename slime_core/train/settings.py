"""Settings of the core's estimators, losses and corrections, without torch, for the catalog."""

from pydantic import Field, model_validator

from slime_core.roles import Settings


class GrpoSettings(Settings):
    """`[advantage.grpo]`, slime's flags."""

    rewards_normalization: bool = Field(True, description="Subtract the group's mean reward.")
    grpo_std_normalization: bool = Field(True, description="Divide by the group's standard deviation (off: Dr.GRPO).")


class PolicyLossSettings(Settings):
    """`[loss.policy_loss]`, slime's flags."""

    eps_clip: float = Field(0.2, gt=0.0, lt=1.0, description="How far the ratio may fall below 1.")
    eps_clip_high: float | None = Field(None, gt=0.0, description="How far it may rise above 1; default eps_clip.")
    eps_clip_c: float | None = Field(None, gt=1.0, description="Dual clip: bound of the loss at negative advantages.")

    @model_validator(mode="after")
    def _high_covers_low(self) -> "PolicyLossSettings":
        if self.eps_clip_high is not None and self.eps_clip_high < self.eps_clip:
            raise ValueError(f"eps_clip_high = {self.eps_clip_high} is below eps_clip = {self.eps_clip}")
        return self


class TisSettings(Settings):
    """`[correction.tis]`, slime's flags."""

    tis_clip: float = Field(2.0, gt=0.0, description="Upper bound of a token's importance weight.")
    tis_clip_low: float = Field(0.0, ge=0.0, description="Lower bound of it.")

    @model_validator(mode="after")
    def _high_covers_low(self) -> "TisSettings":
        if self.tis_clip < self.tis_clip_low:
            raise ValueError(f"tis_clip = {self.tis_clip} is below tis_clip_low = {self.tis_clip_low}")
        return self
