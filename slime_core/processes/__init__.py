"""Starts, limits and ends all processes of a run: the launcher's worker groups and isolated plugin calls.

A fork server starts the processes, limits them, and kills them with their children when the driver ends. A plugin with
its own launcher uses `Host` in its processes and `GroupOfWorkers` in the driver. `Protection` runs rewards with time
and memory limits; `command` does so for a program.

Example:

    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=PluginStats())
    reward = protection.protect(registered, settings, build, name="math")
    verdict = await reward(sample, ctx)
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog.discovery import find_project_files as find_project_files
    from slime_core.processes.launcher import GroupOfWorkers as GroupOfWorkers
    from slime_core.processes.launcher import GroupWorker as GroupWorker
    from slime_core.processes.launcher import free_port as free_port
    from slime_core.processes.limits import own_cores as own_cores
    from slime_core.processes.program import CommandError as CommandError
    from slime_core.processes.program import CommandResult as CommandResult
    from slime_core.processes.program import command as command
    from slime_core.processes.protection import CallFailure as CallFailure
    from slime_core.processes.protection import OnLoop as OnLoop
    from slime_core.processes.protection import Protection as Protection
    from slime_core.processes.protection import StartError as StartError
    from slime_core.processes.protection import check_label as check_label
    from slime_core.processes.protection import isolation_of as isolation_of
    from slime_core.processes.protection import may_check_labels as may_check_labels
    from slime_core.processes.watchdog import Watchdog as Watchdog
    from slime_core.processes.worker import Host as Host
    from slime_core.processes.worker import Reply as Reply
    from slime_core.processes.worker import make_reply as make_reply
else:
    __getattr__, __all__ = exports(__name__)
