"""Checks of the plugins: does each one load, and was it written for this core?"""

import warnings

from slime_core.catalog import Catalog, PluginPhase, PluginStatus, PluginWarning
from slime_core.hookspecs import API_VERSION
from slime_core.roles import Finding, Health


def plugins() -> Finding:
    """Loads every installed plugin and counts those that do not load."""
    statuses = _statuses()
    failed = [each for each in statuses if _failed(each) and each.phase is not PluginPhase.API]
    if failed:
        names = " ".join(each.dist for each in failed if each.dist)
        listed = "; ".join(map(str, failed))
        text = f"{len(failed)} of {len(statuses)} plugins cannot be used: {listed}"
        return Finding(Health.ERROR, text, f"mend what the reason names, or pip uninstall {names}")
    return Finding(Health.OK, ", ".join(f"{each.plugin} {each.version}" for each in statuses if not _failed(each)))


def plugin_api() -> Finding:
    """Compares the plugin API that each plugin declares with the core's."""
    other = [each for each in _statuses() if _failed(each) and each.phase is PluginPhase.API]
    if other:
        text = "; ".join(f"{each.plugin} {each.version} {each.detail}" for each in other)
        return Finding(Health.ERROR, text, "install the versions that the text names")
    return Finding(Health.OK, f"all plugins are written for plugin API {API_VERSION}, which this core has")


def _failed(status: PluginStatus) -> bool:
    return status.failed


def _statuses() -> tuple[PluginStatus, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the finding says it
        return Catalog.discover(strict=False).statuses
