"""The same plugins again in a worker process of the run, in the same order and versions, or an error that names it.

Example:

    catalog = discover_in_worker(setup.plugins, "trainer 3")        # `setup.plugins` is the driver's catalog.plugin_set
"""

import os
import socket

from slime_core.catalog.catalog import Catalog
from slime_core.errors import PluginError, SlimeError
from slime_core.roles import PluginSet


def discover_in_worker(plugins: PluginSet, worker: str) -> Catalog:
    """Load what the driver has loaded.

    Args:
        plugins: the driver's `catalog.plugin_set`, or PluginSet() for whatever is installed here.
        worker: what the worker is called in errors, "trainer 3".

    Raises:
        PluginError: a plugin is missing, broken or of another version here; names worker, machine and process.
    """
    try:
        return Catalog.discover(plugins)
    except SlimeError as error:
        raise PluginError(f"{worker} on {socket.gethostname()} (process {os.getpid()}): {error}") from error
