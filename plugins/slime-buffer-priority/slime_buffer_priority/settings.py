"""PrioritySettings: what `[buffer.priority]` may say in a run file, checked before anything starts.

Example:

    PrioritySettings(order=Order.FIFO, scores={ScoreName.ADVANTAGE: 1.0, ScoreName.STALENESS: 0.5}, max_uses=3)
"""

import enum
from typing import Annotated

from pydantic import Field, model_validator

from slime_core.roles import Coefficient, Number, Settings

Share = Annotated[float, Field(gt=0, le=1)]


COUNT = "replay_count"
"""How often a group is trained on, this time included: key of its metadata from the second time on, and column."""


class Order(enum.StrEnum):
    """Which of the held groups are handed out."""

    PROPORTIONAL = "proportional"
    """At random, by priority to the power of alpha."""
    FIFO = "fifo"
    """In the order in which they came; a used group goes to the end."""


class ScoreName(enum.StrEnum):
    """What a priority is made of; each score is above 0, and higher is drawn more often."""

    ADVANTAGE = "advantage"
    """Mean absolute advantage when it was last trained; the highest so far for a new group."""
    REWARD = "reward"
    """Mean reward, as a share of `reward_range`."""
    DIFFICULTY = "difficulty"
    """4 p (1 - p) with p the mean reward as a share: 1 where half succeed, 0 where all or none do."""
    DIVERSITY = "diversity"
    """Share of the group's responses that differ from one another."""
    RECENCY = "recency"
    """Halves every `recency_half_life` draws since it came."""
    STALENESS = "staleness"
    """Halves every `staleness_half_life` weight versions since its oldest token."""


class PrioritySettings(Settings):
    """`[buffer.priority]` in a run file."""

    order: Order = Field(default=Order.PROPORTIONAL, description="How groups are drawn: proportional or fifo.")
    capacity: int = Field(default=65_536, ge=1, le=2**31, description="Groups held at most; the oldest leave.")
    scores: dict[ScoreName, Coefficient] = Field(
        default={ScoreName.ADVANTAGE: 1.0},
        description="Exponent of each score in the priority, which is their product: "
        "advantage, reward, difficulty, diversity, recency, staleness.",
    )
    epsilon: float = Field(
        default=0.01, gt=0, le=1e6, description="Added to each score, so that nothing is never drawn."
    )
    reward_range: tuple[Number, Number] = Field(default=(0.0, 1.0), description="Rewards that count as 0 and as 1.")
    recency_half_life: float = Field(default=8.0, gt=0, le=1e6, description="Draws in which the recency score halves.")
    staleness_half_life: float = Field(
        default=2.0, gt=0, le=1e6, description="Versions in which the staleness score halves."
    )
    alpha: float = Field(default=0.6, ge=0, le=4, description="How much priorities matter; 0 draws uniformly.")
    beta: float = Field(default=0.4, ge=0, le=1, description="Exponent of the importance weights in rollout 0.")
    beta_rollouts: int = Field(default=1000, ge=0, le=10**9, description="Rollouts in which that exponent grows to 1.")
    normalize: bool = Field(default=True, description="Divide importance weights by the largest of their draw.")
    max_uses: int = Field(default=4, ge=1, le=10**9, description="Most times that one group is trained on.")
    replay_ratio: float = Field(
        default=2.0, ge=1, le=1e6, description="Mean uses of a group; the rest is newly generated."
    )
    max_staleness: int = Field(
        default=8, ge=0, le=1_000_000, description="Weight versions by which a group's oldest token may lag."
    )
    quotas: dict[str, Share] = Field(
        default={}, description="Share of each draw by data set; what is left goes to all the others."
    )

    @model_validator(mode="after")
    def _check(self) -> "PrioritySettings":
        if self.replay_ratio > self.max_uses:
            raise ValueError(
                f"replay_ratio = {self.replay_ratio:g} is out of reach with max_uses = {self.max_uses}: "
                "raise max_uses, or lower replay_ratio"
            )
        if (total := sum(self.quotas.values())) > 1 + 1e-9:
            raise ValueError(f"quotas are shares of one draw and sum to {total:g}; they may sum to 1 at most")
        low, high = self.reward_range
        if low >= high:
            raise ValueError(f"reward_range runs from {low:g} to {high:g}; the first must be the smaller")
        return self
