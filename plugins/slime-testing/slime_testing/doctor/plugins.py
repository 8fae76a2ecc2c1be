"""Checks of the plugins: does each one load, and was it written for this core?"""

import warnings

from slime_core.catalog import Catalog, PluginPhase, PluginStatus, PluginWarning, how_to_speed_up, loads
from slime_core.hookspecs import API_VERSION
from slime_core.roles import Finding, Health

HEAVY = frozenset({"torch", "tensorflow", "jax", "transformers", "ray", "sglang", "vllm"})
"""Packages that take seconds to import."""
SLOW_S = 0.5
"""Seconds of loading that the user of a command notices."""


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


def plugin_speed() -> Finding:
    """Names plugins that took long to load, or imported a heavy package; every command waits for them."""
    _statuses()
    heavy = {name: sorted(load.imported & HEAVY) for name, load in loads().items()}
    slow = {name: load for name, load in loads().items() if load.seconds >= SLOW_S or heavy[name]}
    if not slow:
        return Finding(Health.OK, f"no plugin takes over {SLOW_S:g} s to load, or imports a heavy package")
    told = [
        f"{name} takes {load.seconds:.1f} s" + (f" and imports {', '.join(heavy[name])}" if heavy[name] else "")
        for name, load in slow.items()
    ]
    text = f"every command waits for plugins to load: {'; '.join(told)}"
    return Finding(Health.WARNING, text, how_to_speed_up(" --no-plugin ".join(slow)))


def _failed(status: PluginStatus) -> bool:
    return status.failed


def _statuses() -> tuple[PluginStatus, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the finding says it
        return Catalog.discover(strict=False).statuses
