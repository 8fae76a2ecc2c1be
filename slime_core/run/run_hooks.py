"""RunHooks: tells the plugins that watch a run what happens in it.

Example:

    hooks = RunHooks(catalog, PluginStats())
    await hooks.emit(RolloutStart(rollout_id=3, weight_version=3))

Watchers are awaited one after another, in the order of `catalog.statuses`. What one raises, and one that hangs, never
ends the run; only `StopRun` does.
"""

from collections.abc import Mapping
from time import perf_counter

from slime_core.catalog import Catalog
from slime_core.errors import StopRun
from slime_core.events import Event
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.run.best_effort import BestEffort
from slime_core.stats import PluginStats

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
        for listeners in self._listeners.values():
            for _, calls, _ in listeners:
                calls.limit_s = limit_s
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
