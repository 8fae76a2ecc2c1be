"""Settings of this package's losses and estimators, checked before a run. Imports no torch.

Example:

    DppoSettings(divergence=Divergence.KL, delta=0.05)
"""

import enum
from typing import Self

from pydantic import Field, model_validator

from slime_core.roles import Number, Settings
from slime_train import PolicyGradientSettings


class SapoSettings(PolicyGradientSettings):
    """`[loss.sapo]`: temperatures of the gate, with the paper's defaults."""

    tau_pos: float = Field(
        1.0, gt=0.0, le=1e6, description="Gate steepness for tokens with a positive advantage; higher is stricter."
    )
    tau_neg: float = Field(
        1.05, gt=0.0, le=1e6, description="Gate steepness for tokens with a negative advantage, usually above tau_pos."
    )


class GmpoSettings(PolicyGradientSettings):
    """`[loss.gmpo]`: bounds in nats; the default allows ratios from exp(-0.4) to exp(0.4), as in the paper."""

    eps_clip: float = Field(0.4, gt=0.0, le=1e9, description="How far a token's log-ratio may fall below 0, in nats.")
    eps_clip_high: float | None = Field(
        None, gt=0.0, le=1e9, description="How far a token's log-ratio may rise above 0, in nats; default: eps_clip."
    )

    @property
    def high(self) -> float:
        """Upper bound of the log-ratio, in nats."""
        return self.eps_clip if self.eps_clip_high is None else self.eps_clip_high


class Divergence(enum.StrEnum):
    """Divergence of the policy from the sampler at a token, over the two outcomes "this token" and "another"."""

    TV = "tv"
    """Total variation, 0 to 1."""
    KL = "kl"
    """KL(sampler || policy), in nats."""


class DppoSettings(PolicyGradientSettings):
    """`[loss.dppo]`."""

    divergence: Divergence = Field(Divergence.TV, description="Divergence from the sampler to limit: tv or kl.")
    delta: float | None = Field(
        None,
        gt=0.0,
        le=1e6,
        description="Divergence above which a token may not move further away; default: 0.15 for tv, 0.05 for kl.",
    )
    ratio_bound: float = Field(20.0, gt=1.0, le=1e6, description="Upper bound on a token's ratio.")

    @property
    def limit(self) -> float:
        """`delta`, or the default of the chosen divergence."""
        return self.delta if self.delta is not None else {Divergence.TV: 0.15, Divergence.KL: 0.05}[self.divergence]

    @model_validator(mode="after")
    def _check_delta(self) -> Self:
        if self.divergence is Divergence.TV and self.limit >= 1.0:
            raise ValueError(f"delta = {self.delta} has no effect: a total variation is at most 1. Set a smaller delta")
        return self


class PassAtKSettings(Settings):
    """`[advantage.pass_at_k]`."""

    k: int = Field(
        4, ge=1, le=10**9, description="Responses per draw; a group with fewer responses counts as one draw."
    )
    correct_from: Number = Field(0.5, description="Minimum reward of a correct response.")
