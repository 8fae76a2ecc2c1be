"""Catalog: finds plugins, validates what they offer, hands choices out by name.

The only place that touches pluggy's manager.
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog._cache import Facts, ListedChoice, ListedHook, cache_folder
    from slime_core.catalog._candidates import Candidate, installed_candidates, is_plugin_module
    from slime_core.catalog._in_project import is_in_project
    from slime_core.catalog._install import (
        beside_this_core,
        command_brought_by,
        first_party,
        how_to_get,
        how_to_install,
        is_ours,
        key_brought_by,
        owner_of,
        who_knows_foreign_names,
    )
    from slime_core.catalog._modules import find_project_files, import_project_module, project_source
    from slime_core.catalog._selection import allowed_by_environment
    from slime_core.catalog._slow import Load, how_to_speed_up, loads
    from slime_core.catalog.catalog import ALL_INSTALLED, Catalog
    from slime_core.catalog.checks import check_decision, check_generated, check_selection, check_verdict
    from slime_core.catalog.listing import Listed, list_plugins, remember
    from slime_core.catalog.registered import Registered, place_of
    from slime_core.catalog.status import PluginDeprecation, PluginPhase, PluginState, PluginStatus, PluginWarning
    from slime_core.catalog.worker import discover_in_worker

_HOMES = {
    "slime_core.catalog._cache": "Facts ListedChoice ListedHook cache_folder",
    "slime_core.catalog._candidates": "Candidate installed_candidates is_plugin_module",
    "slime_core.catalog._in_project": "is_in_project",
    "slime_core.catalog._install": (
        "beside_this_core command_brought_by first_party how_to_get how_to_install is_ours key_brought_by owner_of "
        "who_knows_foreign_names"
    ),
    "slime_core.catalog._modules": "find_project_files import_project_module project_source",
    "slime_core.catalog._selection": "allowed_by_environment",
    "slime_core.catalog._slow": "Load how_to_speed_up loads",
    "slime_core.catalog.catalog": "ALL_INSTALLED Catalog",
    "slime_core.catalog.checks": "check_decision check_generated check_selection check_verdict",
    "slime_core.catalog.listing": "Listed list_plugins remember",
    "slime_core.catalog.registered": "Registered place_of",
    "slime_core.catalog.status": "PluginDeprecation PluginPhase PluginState PluginStatus PluginWarning",
    "slime_core.catalog.worker": "discover_in_worker",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "ALL_INSTALLED",
    "Candidate",
    "Catalog",
    "Facts",
    "Listed",
    "ListedChoice",
    "ListedHook",
    "Load",
    "PluginDeprecation",
    "PluginPhase",
    "PluginState",
    "PluginStatus",
    "PluginWarning",
    "Registered",
    "allowed_by_environment",
    "beside_this_core",
    "cache_folder",
    "check_decision",
    "check_generated",
    "check_selection",
    "check_verdict",
    "command_brought_by",
    "discover_in_worker",
    "find_project_files",
    "first_party",
    "how_to_get",
    "how_to_install",
    "how_to_speed_up",
    "import_project_module",
    "installed_candidates",
    "is_in_project",
    "is_ours",
    "is_plugin_module",
    "key_brought_by",
    "list_plugins",
    "loads",
    "owner_of",
    "place_of",
    "project_source",
    "remember",
    "who_knows_foreign_names",
]
