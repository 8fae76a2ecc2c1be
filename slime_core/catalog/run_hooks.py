"""RunHooks: tells the plugins that watch a run what happens in it.

    hooks = RunHooks(catalog, PluginStats())
    await hooks.emit(RolloutStart(rollout_id=3, weight_version=3))

Watchers are awaited one after another, in the order of `catalog.statuses`. One that raises is logged once for
each type of error, counted, and never ends the run; only `StopRun` does.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Mapping
from time import perf_counter
from types import MappingProxyType

from slime_core.catalog.catalog import Catalog
from slime_core.errors import StopRun
from slime_core.events import Event
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.stats import PluginStats

_log = logging.getLogger(__name__)


class RunHooks:
    """The run hooks of a catalog's plugins."""

    def __init__(self, catalog: Catalog, stats: PluginStats) -> None:
        self._listeners = {event: catalog.listeners(hook) for event, hook in HOOK_OF_EVENT.items()}
        self._errors: Counter[str] = Counter()
        self._stats = stats

    @property
    def errors(self) -> Mapping[str, int]:
        """How often a watcher raised, by `plugin/hook/ErrorType`."""
        return MappingProxyType(self._errors)

    async def emit(self, event: Event) -> None:
        """Tell every watcher of this event.

        Raises:
            StopRun: a watcher asks to end the run; raised after all have been told.
        """
        stop: StopRun | None = None
        for listener in self._listeners[type(event)]:
            calls, began = self._stats.calls("run_hook", listener.plugin, listener.plugin), perf_counter()
            try:
                result = listener.function(event) if listener.takes_event else listener.function()
                if inspect.isawaitable(result):
                    await result
            except StopRun as wish:
                stop = stop or wish
            except Exception as error:
                calls.errors += 1
                self._count(f"{listener.plugin}/{HOOK_OF_EVENT[type(event)]}/{type(error).__name__}", error)
            finally:
                calls.seconds.append(perf_counter() - began)
        if stop is not None:
            raise stop

    def _count(self, key: str, error: Exception) -> None:
        self._errors[key] += 1
        if self._errors[key] == 1:
            _log.error("%s: %s (logged once; the run goes on)", key, error, exc_info=error)
