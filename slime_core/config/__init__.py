"""Config: from a run file and flags to a plan in which every name, setting and file is checked."""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.config.alarms import AlarmArgs, AlarmName
    from slime_core.config.chosen import Chosen, ChosenRoles
    from slime_core.config.companions import TEACHER_COLUMN, critic_of, old_actor_of, reference_of, teacher_of
    from slime_core.config.describe import ChosenRow, PlanDescription, describe_plan
    from slime_core.config.families import (
        FAMILIES,
        FAMILY_OF_KEY,
        DataArgs,
        EvalArgs,
        EvalSetArgs,
        OptimArgs,
        RolloutArgs,
        RunArgs,
    )
    from slime_core.config.family import Family
    from slime_core.config.flat_keys import CHOOSES, FlatKeys, Owner, key_faults
    from slime_core.config.groups import GroupNeeds, worker_groups
    from slime_core.config.inert import unread_in_finetuning
    from slime_core.config.model_dir import check_model_dir, read_positions, read_vocab_size
    from slime_core.config.parsing import parse_config
    from slime_core.config.plain_values import MAX_DEPTH, refuse_unfit, shown
    from slime_core.config.plan import Plan
    from slime_core.config.plugin_lock import changed_plugins, lock_plugins, missing_plugins
    from slime_core.config.plugin_table import add_plugins, parse_plugins, plugins_table
    from slime_core.config.resolving import resolve
    from slime_core.config.role_table import DEFAULT_USE, WEIGHTED, RoleTable, parse_use
    from slime_core.config.run_config import RunConfig, default_settings
    from slime_core.config.run_file import RUN_FILES, merge, read_run_file, say_lines, write_toml
    from slime_core.config.settings import read_settings, settings_schema, show_settings
    from slime_core.config.taken_names import Taken, TakenNames
    from slime_core.config.teacher import TEACHES, teaching
    from slime_core.config.unknown_key import elsewhere, hint_for
    from slime_core.config.workers import spellings

_HOMES = {
    "slime_core.config.alarms": "AlarmArgs AlarmName",
    "slime_core.config.chosen": "Chosen ChosenRoles",
    "slime_core.config.companions": "TEACHER_COLUMN critic_of old_actor_of reference_of teacher_of",
    "slime_core.config.describe": "ChosenRow PlanDescription describe_plan",
    "slime_core.config.families": "FAMILIES FAMILY_OF_KEY DataArgs EvalArgs EvalSetArgs OptimArgs RolloutArgs RunArgs",
    "slime_core.config.family": "Family",
    "slime_core.config.flat_keys": "CHOOSES FlatKeys Owner key_faults",
    "slime_core.config.groups": "GroupNeeds worker_groups",
    "slime_core.config.inert": "unread_in_finetuning",
    "slime_core.config.model_dir": "check_model_dir read_positions read_vocab_size",
    "slime_core.config.parsing": "parse_config",
    "slime_core.config.plain_values": "MAX_DEPTH refuse_unfit shown",
    "slime_core.config.plan": "Plan",
    "slime_core.config.plugin_lock": "changed_plugins lock_plugins missing_plugins",
    "slime_core.config.plugin_table": "add_plugins parse_plugins plugins_table",
    "slime_core.config.resolving": "resolve",
    "slime_core.config.role_table": "DEFAULT_USE WEIGHTED RoleTable parse_use",
    "slime_core.config.run_config": "RunConfig default_settings",
    "slime_core.config.run_file": "RUN_FILES merge read_run_file say_lines write_toml",
    "slime_core.config.settings": "read_settings settings_schema show_settings",
    "slime_core.config.taken_names": "Taken TakenNames",
    "slime_core.config.teacher": "TEACHES teaching",
    "slime_core.config.unknown_key": "elsewhere hint_for",
    "slime_core.config.workers": "spellings",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "CHOOSES",
    "DEFAULT_USE",
    "FAMILIES",
    "FAMILY_OF_KEY",
    "MAX_DEPTH",
    "RUN_FILES",
    "TEACHER_COLUMN",
    "TEACHES",
    "WEIGHTED",
    "AlarmArgs",
    "AlarmName",
    "Chosen",
    "ChosenRoles",
    "ChosenRow",
    "DataArgs",
    "EvalArgs",
    "EvalSetArgs",
    "Family",
    "FlatKeys",
    "GroupNeeds",
    "OptimArgs",
    "Owner",
    "Plan",
    "PlanDescription",
    "RoleTable",
    "RolloutArgs",
    "RunArgs",
    "RunConfig",
    "Taken",
    "TakenNames",
    "add_plugins",
    "changed_plugins",
    "check_model_dir",
    "critic_of",
    "default_settings",
    "describe_plan",
    "elsewhere",
    "hint_for",
    "key_faults",
    "lock_plugins",
    "merge",
    "missing_plugins",
    "old_actor_of",
    "parse_config",
    "parse_plugins",
    "parse_use",
    "plugins_table",
    "read_positions",
    "read_run_file",
    "read_settings",
    "read_vocab_size",
    "reference_of",
    "refuse_unfit",
    "resolve",
    "say_lines",
    "settings_schema",
    "show_settings",
    "shown",
    "spellings",
    "teacher_of",
    "teaching",
    "unread_in_finetuning",
    "worker_groups",
    "write_toml",
]
