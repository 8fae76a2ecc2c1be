"""Isolation: runs what a plugin computes where it can be timed, capped and killed.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, build, name="math")
    verdict = await reward(sample, ctx)
"""

from slime_core.isolation.failure import StartError
from slime_core.isolation.limit import Finished, begin, limited
from slime_core.isolation.on_loop import OnLoop
from slime_core.isolation.protection import Protection, isolation_of
from slime_core.isolation.slots import Slots
from slime_core.isolation.watchdog import Watchdog, packages_of

__all__ = [
    "Finished",
    "OnLoop",
    "Protection",
    "Slots",
    "StartError",
    "Watchdog",
    "begin",
    "isolation_of",
    "limited",
    "packages_of",
]
