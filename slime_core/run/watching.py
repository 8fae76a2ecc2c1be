"""Calls run hooks and trackers during a run without letting their errors or delays end it.

Each kind of error is logged once and counted. A call that hangs costs its time limit; after a few times it is not
called again. Only `StopRun` from a run hook ends the run. metrics.jsonl stays the complete record.

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
from types import MappingProxyType
from typing import ParamSpec, TypeAlias, cast

from slime_core.aio import limited
from slime_core.catalog import Catalog
from slime_core.catalog.catalog import Used
from slime_core.errors import StopRun, lines_of, said_by
from slime_core.events import Event
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.roles import Tracker
from slime_core.stats import PluginStats

# BestEffort: calls to plugins that watch or record a run, and never end it, whatever they do.

P = ParamSpec("P")
Failed: TypeAlias = BaseException | None
MOST_TIMEOUTS = 3
"""Times that a call may run into its limit before it is made no more."""
_log = logging.getLogger(__name__)


class BestEffort:
    """Calls of one kind, by name."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        """`what` they are, for the log; `limit_s` is each one's time."""
        self._what = what
        self._limit_s = limit_s
        self._errors: Counter[str] = Counter()
        self._timeouts: Counter[str] = Counter()
        self._given_up: set[str] = set()

    @property
    def errors(self) -> Mapping[str, int]:
        """How often one failed, by `name/ErrorType`."""
        return MappingProxyType(self._errors)

    async def call(self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Failed:
        """Call it, and await what it returns if that can be awaited; returns what it raised.

        Raises:
            StopRun: it says so.
            CancelledError: somebody cancelled the task that this runs in.
        """
        if name in self._given_up:
            return None
        task = cast(asyncio.Task[object], asyncio.current_task())
        cancels = task.cancelling()
        try:
            result = function(*args, **kwargs)
            if result is not None and inspect.isawaitable(result):
                await limited(result, self._limit_s)
        except StopRun:
            raise
        except asyncio.CancelledError as error:
            if task.cancelling() > cancels:
                raise
            return self._failed(name, error)
        except TimeoutError as error:
            self._timeouts[name] += 1
            return self._failed(name, error)
        except BaseException as error:  # SystemExit and its like too: asyncio would end the run with it
            return self._failed(name, error)
        return None

    def _failed(self, name: str, error: BaseException) -> BaseException:
        key = f"{name}/{type(error).__name__}"
        self._errors[key] += 1
        if self._timeouts[name] == MOST_TIMEOUTS:
            self._given_up.add(name)
            _log.error("%s %s: given up after %d time-outs; it is called no more", self._what, name, MOST_TIMEOUTS)
        elif self._errors[key] == 1:
            text, lines = said_by(error), lines_of(error)
            _log.error("%s %s: %s (logged once; the run goes on)%s", self._what, key, text, lines)
        return error


# RunHooks: tells the plugins that watch a run what happens in it.

LIMIT_S = 30.0
"""Seconds that a watcher may take for one event."""


class RunHooks:
    """The run hooks of a catalog's plugins."""

    def __init__(self, catalog: Catalog, stats: PluginStats, *, limit_s: float = LIMIT_S) -> None:
        """Take the listeners; each may take `limit_s` for one event."""
        self._listeners = {
            event: [
                (f"{each.plugin}/{hook}", stats.calls("run_hook", each.plugin, each.plugin), each)
                for each in catalog.listeners(hook)
            ]
            for event, hook in HOOK_OF_EVENT.items()
        }
        self._calls = BestEffort("run hook", limit_s=limit_s)

    @property
    def errors(self) -> Mapping[str, int]:
        """How often a watcher failed, by `plugin/hook/ErrorType`."""
        return self._calls.errors

    async def emit(self, event: Event) -> None:
        """Tell every watcher of this event.

        Raises:
            StopRun: a watcher asks to end the run; raised after all have been told.
        """
        stop: StopRun | None = None
        for name, calls, listener in self._listeners[type(event)]:
            began = perf_counter()
            try:
                if listener.takes_event:
                    failed = await self._calls.call(name, listener.function, event)
                else:
                    failed = await self._calls.call(name, listener.function)
                if isinstance(failed, TimeoutError):
                    calls.timeouts += 1
                elif failed is not None:
                    calls.errors += 1
            except StopRun as wish:
                stop = stop or wish
            finally:
                calls.seconds.append(perf_counter() - began)
        if stop is not None:
            raise stop


# Trackers: metrics to wherever the run's trackers send them; best effort, since metrics.jsonl is the record.

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
