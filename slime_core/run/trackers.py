"""Trackers: metrics to wherever the run's trackers send them; best effort, since metrics.jsonl is the record.

One that raises or hangs is logged once for each kind of error and counted; it never ends the run.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from slime_core.catalog.used import Used
from slime_core.roles import Tracker

TIMEOUT_S = 30.0
"""Seconds that a tracker may take for one row."""
_log = logging.getLogger(__name__)


class Trackers:
    """The run's trackers as one."""

    def __init__(self, uses: Sequence[Used[Tracker]] = ()) -> None:
        """Take over built trackers."""
        self._uses = tuple(uses)
        self._errors: Counter[str] = Counter()

    @property
    def errors(self) -> Mapping[str, int]:
        """How often one failed, by `plugin/name/ErrorType`."""
        return MappingProxyType(self._errors)

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one row to every tracker."""
        for use in self._uses:
            await self._best_effort(use, partial(use.part.log, step, metrics))

    async def close(self) -> None:
        """Flush every tracker."""
        for use in self._uses:
            await self._best_effort(use, use.part.close)

    def metrics(self) -> dict[str, float]:
        """Failures of each tracker that had any."""
        counts: Counter[str] = Counter()
        for key, count in self._errors.items():
            counts[key.split("/")[1]] += count
        return {f"plugin/tracker/{name}/errors": float(count) for name, count in sorted(counts.items())}

    async def _best_effort(self, use: Used[Tracker], call: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await call()
        except Exception as error:
            key = f"{use.plugin}/{use.name}/{type(error).__name__}"
            self._errors[key] += 1
            if self._errors[key] == 1:
                _log.error("tracker %s: %s (logged once; the run goes on)", key, error, exc_info=error)
