"""Config: from a run file and flags to a plan in which every name, setting and file is checked."""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.config.companions import TEACHER_COLUMN as TEACHER_COLUMN
    from slime_core.config.companions import TEACHER_EXTRAS as TEACHER_EXTRAS
    from slime_core.config.companions import critic_of as critic_of
    from slime_core.config.companions import old_actor_lag as old_actor_lag
    from slime_core.config.companions import reference_of as reference_of
    from slime_core.config.companions import teacher_of as teacher_of
    from slime_core.config.companions import teacher_sampling as teacher_sampling
    from slime_core.config.keys import FAMILIES as FAMILIES
    from slime_core.config.keys import FAMILY_OF_KEY as FAMILY_OF_KEY
    from slime_core.config.keys import AlarmArgs as AlarmArgs
    from slime_core.config.keys import AlarmName as AlarmName
    from slime_core.config.keys import EvalSetArgs as EvalSetArgs
    from slime_core.config.keys import Family as Family
    from slime_core.config.keys import OptimArgs as OptimArgs
    from slime_core.config.keys import RolloutArgs as RolloutArgs
    from slime_core.config.keys import RunArgs as RunArgs
    from slime_core.config.keys import RunConfig as RunConfig
    from slime_core.config.keys import default_settings as default_settings
    from slime_core.config.model_dir import check_model_dir as check_model_dir
    from slime_core.config.model_dir import read_positions as read_positions
    from slime_core.config.model_dir import read_vocab_size as read_vocab_size
    from slime_core.config.parsing import parse_config as parse_config
    from slime_core.config.parsing import unused_in_finetuning as unused_in_finetuning
    from slime_core.config.plan import Plan as Plan
    from slime_core.config.plan import changed_plugins as changed_plugins
    from slime_core.config.plan import lock_plugins as lock_plugins
    from slime_core.config.plan import missing_plugins as missing_plugins
    from slime_core.config.plan import worker_groups as worker_groups
    from slime_core.config.resolving import Installed as Installed
    from slime_core.config.resolving import resolve as resolve
    from slime_core.config.run_file import MAX_DEPTH as MAX_DEPTH
    from slime_core.config.run_file import add_plugins as add_plugins
    from slime_core.config.run_file import merge as merge
    from slime_core.config.run_file import parse_plugins as parse_plugins
    from slime_core.config.run_file import read_run_file as read_run_file
    from slime_core.config.run_file import refuse_unfit as refuse_unfit
    from slime_core.config.run_file import short_repr as short_repr
    from slime_core.config.run_file import write_toml as write_toml
    from slime_core.config.settings import DEFAULT_USE as DEFAULT_USE
    from slime_core.config.settings import WEIGHTED as WEIGHTED
    from slime_core.config.settings import ChosenRoles as ChosenRoles
    from slime_core.config.settings import ResolvedChoice as ResolvedChoice
    from slime_core.config.settings import parse_use as parse_use
    from slime_core.config.settings import read_settings as read_settings
    from slime_core.config.settings import show_settings as show_settings
    from slime_core.config.sources import ROLE_OF_ALIAS as ROLE_OF_ALIAS
    from slime_core.config.sources import FlatKeys as FlatKeys
    from slime_core.config.sources import canonical as canonical
    from slime_core.config.sources import hint_for as hint_for
    from slime_core.config.sources import key_faults as key_faults
    from slime_core.config.sources import prefixes as prefixes
else:
    __getattr__, __all__ = exports(__name__)
