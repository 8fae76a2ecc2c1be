"""Calls run hooks and trackers during a run without letting their errors or delays end it.

Each kind of error is logged once and counted. A call that hangs costs its time limit; after `MAX_TIMEOUTS` timeouts
it is skipped. Only `StopRun` from a run hook ends the run. metrics.jsonl remains the complete record.

Example:

    hooks = RunHooks(catalog, PluginStats())
    await hooks.emit(RolloutStart(rollout_id=3, weight_version=3))
"""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import ParamSpec, cast

from slime_core.aio import limited
from slime_core.catalog import Catalog
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import StopRun, error_text, traceback_text
from slime_core.events import Event
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.roles import Tracker
from slime_core.stats import CallStats, PluginStats

P = ParamSpec("P")
MAX_TIMEOUTS = 3
"""Timeouts of a call before it is skipped from then on."""
LIMIT_S = 30.0
"""Time limit in seconds of a hook for one event, or a tracker for one row."""
_log = logging.getLogger(__name__)


class BestEffort:
    """Makes calls of one kind; logs and counts their errors instead of raising them."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        """`what` names the calls in the log; `limit_s` is the time limit of each."""
        self._what, self._limit_s = what, limit_s
        self.errors: Counter[str] = Counter()
        """Number of errors, by `plugin/name/ErrorType`."""
        self._timeouts: Counter[str] = Counter()

    async def call(
        self, name: str, calls: CallStats, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Make one call, and await an awaitable result; records time and errors in `calls`.

        Raises:
            StopRun: the function raised it.
            CancelledError: the current task was cancelled.
        """
        if self._timeouts[name] >= MAX_TIMEOUTS:
            return
        task = cast(asyncio.Task[object], asyncio.current_task())
        cancels, began = task.cancelling(), perf_counter()
        try:
            result = function(*args, **kwargs)
            if result is not None and inspect.isawaitable(result):
                await limited(result, self._limit_s)
        except StopRun:
            raise
        except BaseException as error:  # SystemExit too: in asyncio it would end the run
            if isinstance(error, asyncio.CancelledError) and task.cancelling() > cancels:
                raise
            self._note(name, calls, error)
        finally:
            calls.seconds.append(perf_counter() - began)

    def _note(self, name: str, calls: CallStats, error: BaseException) -> None:
        key, is_late = f"{name}/{type(error).__name__}", isinstance(error, TimeoutError)
        calls.timeouts += is_late
        calls.errors += not is_late
        self.errors[key] += 1
        self._timeouts[name] += is_late
        if self._timeouts[name] == MAX_TIMEOUTS:
            _log.error("%s %s: skipped from now on, after %d timeouts", self._what, name, MAX_TIMEOUTS)
        elif self.errors[key] == 1:
            text, lines = error_text(error), traceback_text(error)
            _log.error("%s %s: %s (logged once; the run goes on)%s", self._what, key, text, lines)


class RunHooks(BestEffort):
    """The run hooks of a catalog's plugins."""

    def __init__(self, catalog: Catalog, stats: PluginStats, *, limit_s: float = LIMIT_S) -> None:
        """Collect the hooks of the plugins; each has `limit_s` seconds per event."""
        super().__init__("run hook", limit_s=limit_s)
        self._listeners = {
            event: [
                (f"{each.plugin}/{hook}", stats.calls("run_hook", each.plugin, each.plugin), each)
                for each in catalog.listeners(hook)
            ]
            for event, hook in HOOK_OF_EVENT.items()
        }

    async def emit(self, event: Event) -> None:
        """Call every hook of this event.

        Raises:
            StopRun: a hook requests the end of the run; raised after all hooks were called.
        """
        stop: StopRun | None = None
        for name, calls, listener in self._listeners[type(event)]:
            try:
                await self.call(name, calls, listener.function, *((event,) if listener.takes_event else ()))
            except StopRun as request:
                stop = stop or request
        if stop is not None:
            raise stop


class Trackers(BestEffort):
    """The run's trackers."""

    def __init__(
        self, stats: PluginStats, uses: Sequence[BuiltChoice[Tracker]] = (), *, limit_s: float = LIMIT_S
    ) -> None:
        """Take over built trackers; counts their calls in `stats`, and gives each `limit_s` seconds per row."""
        super().__init__("tracker", limit_s=limit_s)
        self._uses = [(f"{use.plugin}/{use.name}", stats.calls("tracker", use.name, use.plugin), use) for use in uses]

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one row to every tracker."""
        for name, calls, use in self._uses:
            await self.call(name, calls, use.part.log, step, dict(metrics))

    async def close(self) -> None:
        """Flush every tracker."""
        for name, calls, use in self._uses:
            await self.call(name, calls, use.part.close)
