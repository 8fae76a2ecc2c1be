"""ServedWeights: copies of published weights, kept while rollouts that they generated await training.

Example:

    served = ServedWeights[torch.Tensor](lag=1)
    served.published(4, weights.clone)              # engines have version 4 now
    version, older = served.of(rollout_id=5)        # what generated rollout 5, while rollout 4 was trained on
"""

from collections.abc import Callable
from typing import Generic, TypeVar

WeightsT = TypeVar("WeightsT")


class ServedWeights(Generic[WeightsT]):
    """At most two copies: the current weights and, if rollouts are generated ahead, the previous ones."""

    def __init__(self, lag: int) -> None:
        """Nothing is published yet; `lag` rollouts are generated ahead."""
        self._lag = lag
        self._held: dict[int, WeightsT] = {}

    def published(self, version: int, copy: Callable[[], WeightsT]) -> None:
        """Take a copy of a version unless it is held already; forget versions that no later rollout needs."""
        if version not in self._held:
            self._held[version] = copy()
        first = max((held for held in self._held if held <= version - self._lag), default=0)
        self._held = {held: weights for held, weights in self._held.items() if held >= first}

    def of(self, rollout_id: int) -> tuple[int, WeightsT]:
        """The version that generated a rollout, and its weights: the newest when it began, else the first."""
        then = [version for version in self._held if version <= rollout_id - self._lag]
        version = max(then) if then else min(self._held)
        return version, self._held[version]

    def saved(self) -> tuple[int, WeightsT] | None:
        """Oldest held version and its weights, for the checkpoint; None if only the newest is held."""
        oldest = min(self._held, default=0)
        return (oldest, self._held[oldest]) if len(self._held) > 1 else None

    def restore(self, version: int, weights: WeightsT) -> None:
        """The inverse of `saved`, before anything is published."""
        self._held = {version: weights}
