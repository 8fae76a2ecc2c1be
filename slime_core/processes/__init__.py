"""Processes: how the core starts, ties down and ends every process that works for a run.

A server process forks them, sees each of them end, and ends whatever they have started; it ends with the driver.
The local launcher (`launcher`) and isolation's pool of workers are the two users. What a launcher of a plugin runs in
its own processes is here for it: a `Host` builds the group's class and answers calls; and in the driver a
`GroupOfWorkers` calls them together, each of them a `GroupWorker`.

Example:

    host = Host()
    reply = answered(lambda: host.build(spec, place, setup.plugins))        # a Reply, whatever happened
    reply = answered(lambda: host.call("train_step", (batch,)))
    host.close()
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog import find_project_files
    from slime_core.processes.group import GroupOfWorkers
    from slime_core.processes.group_worker import GroupWorker
    from slime_core.processes.host import Host, Reply, answered
    from slime_core.processes.launcher import free_port

_HOMES = {
    "slime_core.processes.group": "GroupOfWorkers",
    "slime_core.processes.group_worker": "GroupWorker",
    "slime_core.catalog._modules": "find_project_files",
    "slime_core.processes.host": "Host Reply answered",
    "slime_core.processes.launcher": "free_port",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = ["GroupOfWorkers", "GroupWorker", "Host", "Reply", "answered", "find_project_files", "free_port"]
