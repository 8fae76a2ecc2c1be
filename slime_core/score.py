"""Results of a reward: a number, a reason why there is none, or "not applicable to this sample".

A failed scorer never counts as 0: it returns `Unscored`, and the run's policy (`reward_on_error`) decides.

    return Score(1.0, {"correct": 1.0})
    return Unscored("no gold answer in the row")
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

__all__ = ["NotApplicable", "Score", "Unscored", "Verdict"]


@dataclass(frozen=True, slots=True)
class Score:
    """A finite reward.

    Raises:
        ValueError: `value` or a component is NaN or infinite.
    """

    value: float
    """The reward as the advantage estimator sees it."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts, each averaged into a metric; they need not sum to `value`."""

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), *self.components.items()):
            if not isfinite(number):
                raise ValueError(f"Score {name} must be finite, got {number!r}; return Unscored(reason) instead")


@dataclass(frozen=True, slots=True)
class Unscored:
    """The scorer failed. The run's policy drops the sample, masks it or ends the run."""

    reason: str
    """A short, countable text without the sample's data, because it becomes a metric."""
    retryable: bool = False
    """Whether a retry may succeed, for example after a timeout or a refused connection."""
    detail: str = ""
    """What happened, for logs and error texts; may contain the sample's data."""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """This reward does not apply to this sample, and adds nothing to a weighted sum."""


Verdict = Score | Unscored | NotApplicable
"""All results that a reward may return."""
