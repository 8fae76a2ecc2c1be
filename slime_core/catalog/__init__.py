"""Catalog: finds plugins, validates their choices, and looks choices up by name.

Only this package uses pluggy's manager.
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog.catalog import ALL_INSTALLED as ALL_INSTALLED
    from slime_core.catalog.catalog import Catalog as Catalog
    from slime_core.catalog.catalog import discover_in_worker as discover_in_worker
    from slime_core.catalog.checks import check_decision as check_decision
    from slime_core.catalog.checks import check_generated as check_generated
    from slime_core.catalog.checks import check_selection as check_selection
    from slime_core.catalog.checks import check_verdict as check_verdict
    from slime_core.catalog.discovery import PluginState as PluginState
    from slime_core.catalog.discovery import PluginStatus as PluginStatus
    from slime_core.catalog.discovery import PluginWarning as PluginWarning
    from slime_core.catalog.discovery import allowed_by_environment as allowed_by_environment
    from slime_core.catalog.discovery import find_project_files as find_project_files
    from slime_core.catalog.discovery import import_project_module as import_project_module
    from slime_core.catalog.discovery import installed_candidates as installed_candidates
    from slime_core.catalog.discovery import is_plugin_module as is_plugin_module
    from slime_core.catalog.discovery import project_source as project_source
    from slime_core.catalog.discovery import select_plugins as select_plugins
    from slime_core.catalog.loading import Registered as Registered
    from slime_core.catalog.loading import place_of as place_of
    from slime_core.catalog.packages import PARTS as PARTS
    from slime_core.catalog.packages import beside_this_core as beside_this_core
    from slime_core.catalog.packages import command_brought_by as command_brought_by
    from slime_core.catalog.packages import first_party as first_party
    from slime_core.catalog.packages import help_line as help_line
    from slime_core.catalog.packages import how_to_get as how_to_get
    from slime_core.catalog.packages import how_to_install as how_to_install
    from slime_core.catalog.packages import is_ours as is_ours
    from slime_core.catalog.packages import key_brought_by as key_brought_by
    from slime_core.catalog.packages import owner_of as owner_of
    from slime_core.catalog.packages import part as part
    from slime_core.catalog.packages import part_of as part_of
    from slime_core.catalog.packages import who_knows_foreign_names as who_knows_foreign_names
    from slime_core.catalog.project_code import is_in_project as is_in_project
else:
    __getattr__, __all__ = exports(__name__)
