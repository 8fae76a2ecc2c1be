"""Trackers: metrics to wherever the run's trackers send them; best effort, since metrics.jsonl is the record."""

from collections import Counter
from collections.abc import Mapping, Sequence

from slime_core.catalog.used import Used
from slime_core.roles import Tracker
from slime_core.run.best_effort import BestEffort

TIMEOUT_S = 30.0
"""Seconds that a tracker may take for one row."""


class Trackers:
    """The run's trackers as one."""

    def __init__(self, uses: Sequence[Used[Tracker]] = (), *, limit_s: float = TIMEOUT_S) -> None:
        """Take over built trackers; each may take `limit_s` for a row."""
        self._uses = tuple(uses)
        self._calls = BestEffort("tracker", limit_s=limit_s)

    @property
    def errors(self) -> Mapping[str, int]:
        """How often one failed, by `plugin/name/ErrorType`."""
        return self._calls.errors

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one row to every tracker."""
        for use in self._uses:
            await self._calls.call(f"{use.plugin}/{use.name}", use.part.log, step, dict(metrics))

    async def close(self) -> None:
        """Flush every tracker."""
        for use in self._uses:
            await self._calls.call(f"{use.plugin}/{use.name}", use.part.close)

    def metrics(self) -> dict[str, float]:
        """Failures of each tracker that had any."""
        counts: Counter[str] = Counter()
        for key, count in self._calls.errors.items():
            counts[key.split("/")[1]] += count
        return {f"plugin/tracker/{name}/errors": float(count) for name, count in sorted(counts.items())}
