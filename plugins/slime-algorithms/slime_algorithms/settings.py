"""Settings of `[loss.sapo]`, `[advantage.pass_at_k]` and the others, checked before a run. Imports no torch.

Example:

    DppoSettings(divergence=Divergence.KL, delta=0.05)
"""

import enum
from typing import Self

from pydantic import Field, model_validator

from slime_core.roles import Number, Settings
from slime_train import PolicyGradientSettings


class SapoSettings(PolicyGradientSettings):
    """`[loss.sapo]`: temperatures of the gate; the defaults are the paper's."""

    tau_pos: float = Field(
        1.0, gt=0.0, le=1e6, description="How fast tokens of positive advantage lose their gradient."
    )
    tau_neg: float = Field(
        1.05, gt=0.0, le=1e6, description="How fast those of negative advantage do; as a rule faster."
    )


class GmpoSettings(PolicyGradientSettings):
    """`[loss.gmpo]`: bounds in nats; the default is the paper's, ratios of exp(-0.4) to exp(0.4)."""

    eps_clip: float = Field(0.4, gt=0.0, le=1e9, description="How far a token's log-ratio may fall below 0, nats.")
    eps_clip_high: float | None = Field(
        None, gt=0.0, le=1e9, description="How far it may rise above 0; default eps_clip."
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
    """Kullback-Leibler, of sampler from policy, nats."""


class DppoSettings(PolicyGradientSettings):
    """`[loss.dppo]`."""

    divergence: Divergence = Field(Divergence.TV, description="Which divergence bounds a token: tv or kl.")
    delta: float | None = Field(
        None,
        gt=0.0,
        le=1e6,
        description="The most of it at which a token still moves away; default 0.15 for tv, 0.05 for kl.",
    )
    ratio_bound: float = Field(20.0, gt=1.0, le=1e6, description="The most that a token is weighed with.")

    @property
    def limit(self) -> float:
        """The divergence above which a token may not move further away."""
        return self.delta if self.delta is not None else {Divergence.TV: 0.15, Divergence.KL: 0.05}[self.divergence]

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.divergence is Divergence.TV and self.limit >= 1.0:
            raise ValueError(f"delta = {self.delta} bounds nothing: a total variation is at most 1")
        return self


class PassAtKSettings(Settings):
    """`[advantage.pass_at_k]`."""

    k: int = Field(
        4, ge=1, le=10**9, description="How many attempts are judged together; a smaller group is judged whole."
    )
    correct_from: Number = Field(0.5, description="The least reward of a correct response.")
