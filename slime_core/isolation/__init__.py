"""Isolation: runs what a plugin computes where it can be timed, capped and killed.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, build, name="math")
    verdict = await reward(sample, ctx)
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.isolation.failure import CallFailure, StartError
    from slime_core.isolation.labels import LabelCheck, may_check_labels
    from slime_core.isolation.limit import limited
    from slime_core.isolation.on_loop import OnLoop
    from slime_core.isolation.protection import Protection, isolation_of
    from slime_core.isolation.slots import Slots
    from slime_core.isolation.watchdog import Watchdog, packages_of

_HOMES = {
    "slime_core.isolation.failure": "CallFailure StartError",
    "slime_core.isolation.labels": "LabelCheck may_check_labels",
    "slime_core.isolation.limit": "limited",
    "slime_core.isolation.on_loop": "OnLoop",
    "slime_core.isolation.protection": "Protection isolation_of",
    "slime_core.isolation.slots": "Slots",
    "slime_core.isolation.watchdog": "Watchdog packages_of",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "CallFailure",
    "LabelCheck",
    "OnLoop",
    "Protection",
    "Slots",
    "StartError",
    "Watchdog",
    "isolation_of",
    "limited",
    "may_check_labels",
    "packages_of",
]
