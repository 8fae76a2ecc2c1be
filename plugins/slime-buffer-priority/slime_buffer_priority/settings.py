"""Settings of `[buffer.priority]` in a run file, checked before anything starts.

Example:

    PrioritySettings(order=Order.FIFO, scores={ScoreName.ADVANTAGE: 1.0, ScoreName.STALENESS: 0.5}, max_uses=3)
"""

import enum
from typing import Annotated

from pydantic import Field, model_validator

from slime_core.roles import Coefficient, Number, Settings

Share = Annotated[float, Field(gt=0, le=1)]


COUNT = "replay_count"
"""Name of a column, and of a metadata key from a group's second use on: its number of uses, this one included."""


class Order(enum.StrEnum):
    """Order in which groups are drawn."""

    PROPORTIONAL = "proportional"
    """At random, in proportion to priority ** alpha."""
    FIFO = "fifo"
    """In order of arrival; a used group goes to the end."""


class ScoreName(enum.StrEnum):
    """Factors of a priority; a group with higher scores is drawn more often."""

    ADVANTAGE = "advantage"
    """Mean absolute advantage at the last training; the highest so far for a new group."""
    REWARD = "reward"
    """Mean reward, as a share of `reward_range`."""
    DIFFICULTY = "difficulty"
    """4 p (1 - p) with p the mean reward as a share: 1 if half of the samples succeed, 0 if all or none do."""
    DIVERSITY = "diversity"
    """Share of distinct responses in the group."""
    RECENCY = "recency"
    """Halves every `recency_half_life` draws since the group arrived."""
    STALENESS = "staleness"
    """Halves every `staleness_half_life` weight versions since the group's oldest token."""


class PrioritySettings(Settings):
    """`[buffer.priority]` in a run file."""

    order: Order = Field(default=Order.PROPORTIONAL, description="How groups are drawn: proportional or fifo.")
    capacity: int = Field(
        default=65_536, ge=1, le=2**31, description="Maximum number of groups; the oldest are dropped."
    )
    scores: dict[ScoreName, Coefficient] = Field(
        default={ScoreName.ADVANTAGE: 1.0},
        description="Exponent of each score; the priority is the product of the powers. Scores: "
        "advantage, reward, difficulty, diversity, recency, staleness.",
    )
    epsilon: float = Field(default=0.01, gt=0, le=1e6, description="Added to each score, so that no priority is 0.")
    reward_range: tuple[Number, Number] = Field(
        default=(0.0, 1.0), description="Mean rewards that count as 0 and as 1."
    )
    recency_half_life: float = Field(
        default=8.0, gt=0, le=1e6, description="Draws after which the score recency halves."
    )
    staleness_half_life: float = Field(
        default=2.0, gt=0, le=1e6, description="Weight versions after which the score staleness halves."
    )
    alpha: float = Field(default=0.6, ge=0, le=4, description="Exponent of priorities; 0 draws uniformly.")
    beta: float = Field(default=0.4, ge=0, le=1, description="Exponent of the importance weights in rollout 0.")
    beta_rollouts: int = Field(default=1000, ge=0, le=10**9, description="Rollouts after which that exponent is 1.")
    normalize: bool = Field(default=True, description="Divide importance weights by the largest of their draw.")
    max_uses: int = Field(default=4, ge=1, le=10**9, description="Maximum number of times to train on a group.")
    replay_ratio: float = Field(default=2.0, ge=1, le=1e6, description="Mean uses of a group; at most max_uses.")
    max_staleness: int = Field(
        default=8, ge=0, le=1_000_000, description="Maximum lag of a group's oldest token, in weight versions."
    )
    quotas: dict[str, Share] = Field(
        default={}, description="Share of each draw by data set; the rest goes to all other data sets."
    )

    @model_validator(mode="after")
    def _check(self) -> "PrioritySettings":
        if self.replay_ratio > self.max_uses:
            raise ValueError(
                f"replay_ratio = {self.replay_ratio:g} is more than max_uses = {self.max_uses}: "
                "raise max_uses, or lower replay_ratio"
            )
        if (total := sum(self.quotas.values())) > 1 + 1e-9:
            raise ValueError(f"quotas sum to {total:g}; they are shares of a draw and may sum to at most 1")
        low, high = self.reward_range
        if low >= high:
            raise ValueError(f"reward_range is [{low:g}, {high:g}]; the first number must be the smaller one")
        return self
