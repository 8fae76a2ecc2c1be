"""Catalog: finds plugins, validates what they offer, hands choices out by name.

The only place that touches pluggy's manager.
"""

from slime_core.catalog._suggest import did_you_mean
from slime_core.catalog.catalog import Catalog
from slime_core.catalog.checks import check_decision, check_generated, check_selection, check_verdict
from slime_core.catalog.registered import Registered
from slime_core.catalog.run_hooks import RunHooks
from slime_core.catalog.status import PluginPhase, PluginState, PluginStatus, PluginWarning

__all__ = [
    "Catalog",
    "PluginPhase",
    "PluginState",
    "PluginStatus",
    "PluginWarning",
    "Registered",
    "RunHooks",
    "check_decision",
    "check_generated",
    "check_selection",
    "check_verdict",
    "did_you_mean",
]
