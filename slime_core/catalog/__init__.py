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
    from slime_core.catalog.loading import RegisteredChoice as RegisteredChoice
    from slime_core.catalog.loading import source_location as source_location
    from slime_core.catalog.packages import PARTS as PARTS
    from slime_core.catalog.packages import find_part as find_part
    from slime_core.catalog.packages import first_party as first_party
    from slime_core.catalog.packages import help_line as help_line
    from slime_core.catalog.packages import install_advice as install_advice
    from slime_core.catalog.packages import is_first_party as is_first_party
    from slime_core.catalog.packages import load_part as load_part
    from slime_core.catalog.packages import owner_package as owner_package
    from slime_core.catalog.packages import package_of_command as package_of_command
    from slime_core.catalog.packages import package_of_foreign_names as package_of_foreign_names
    from slime_core.catalog.packages import package_of_key as package_of_key
    from slime_core.catalog.packages import pip_command as pip_command
    from slime_core.catalog.packages import version_advice as version_advice
    from slime_core.catalog.project_code import is_project_code as is_project_code
else:
    __getattr__, __all__ = exports(__name__)
