"""Calls the plugins' rank hooks on a rank of the trainer.

Example:

    RankHooks(catalog).fire(BeforeTrainStep(rank, ...))
"""

from slime_core.catalog import Catalog
from slime_core.errors import PluginError, error_text
from slime_core.events import RankEvent
from slime_core.hookspecs import HOOK_OF_RANK_EVENT


class RankHooks:
    """The rank hooks of a catalog's plugins."""

    def __init__(self, catalog: Catalog) -> None:
        self._listeners = {event: catalog.listeners(hook) for event, hook in HOOK_OF_RANK_EVENT.items()}

    def fire(self, event: RankEvent) -> None:
        """Call every implementation of the event's hook.

        Raises:
            PluginError: a hook raised; names plugin, hook and rank, and ends the run on all ranks.
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
                    f"{event.rank}: {type(error).__name__}: {error_text(error)}"
                ) from error
