"""RankHooks: tells the plugins that watch a trainer's rank what happens in it.

    hooks = RankHooks(catalog)
    hooks.fire(BeforeTrainStep(rank=0, rollout_id=3, step=3, batch=batch, model=model, optimizer=optimizer))

Watchers are called one after another, in the order of `catalog.statuses`. An error in one is never swallowed: ranks
that no longer agree would train different models.
"""

from slime_core.catalog.catalog import Catalog
from slime_core.errors import PluginError, said_by
from slime_core.events import RankEvent
from slime_core.hookspecs import HOOK_OF_RANK_EVENT


class RankHooks:
    """The rank hooks of a catalog's plugins."""

    def __init__(self, catalog: Catalog) -> None:
        self._listeners = {event: catalog.listeners(hook) for event, hook in HOOK_OF_RANK_EVENT.items()}

    def fire(self, event: RankEvent) -> None:
        """Tell every watcher of this event.

        Raises:
            PluginError: a watcher raised; names plugin, hook and rank, and ends the run on all ranks.
        """
        for listener in self._listeners[type(event)]:
            try:
                if listener.takes_event:
                    listener.function(event)
                else:
                    listener.function()
            except BaseException as error:
                raise PluginError(
                    f"rank hook {HOOK_OF_RANK_EVENT[type(event)]} of plugin {listener.plugin} raised on rank "
                    f"{event.rank}: {type(error).__name__}: {said_by(error)}"
                ) from error
