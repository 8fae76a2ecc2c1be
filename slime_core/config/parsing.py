"""From the keys of a run file to a `RunConfig`, checked as far as it goes without looking at files.

Keys are flat; each role is a table whose `use` selects (`[reward] use = {math = 0.8}`), with settings in
`[reward.math]`. Settings that their specs declare as flat keys are accepted flat and land in their section.

Example:

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
"""

from collections.abc import Mapping

from pydantic import ValidationError

from slime_core.catalog import Catalog
from slime_core.config.cluster import ClusterArgs
from slime_core.config.families import (
    FAMILIES,
    FAMILY_OF_KEY,
)
from slime_core.config.flat_keys import CHOOSES, FlatKeys
from slime_core.config.inert import refuse_inert
from slime_core.config.plugin_table import TABLE, parse_plugins
from slime_core.config.role_table import RoleTable, parse_role_table
from slime_core.config.run_config import RunConfig
from slime_core.config.settings import explain
from slime_core.config.taken_names import TakenNames
from slime_core.config.unknown_key import unknown_key
from slime_core.config.workers import place_workers
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, LossSpec, PluginSet
from slime_core.sample import Json


def parse_config(values: Mapping[str, Json], catalog: Catalog | None = None) -> RunConfig:
    """Check and sort the keys of a run file.

    Args:
        values: the keys.
        catalog: what is offered, for the keys that choices have; by default what `[plugins]` says is loaded.

    Raises:
        ConfigError: unknown, missing, mistyped, out-of-range or inert keys; all of them in one message.
        PluginError: a choice declares keys that it cannot have, or a plugin that is asked for cannot be loaded.
    """
    problems: list[str] = []
    plugins = PluginSet()
    try:
        plugins = parse_plugins(values.get(TABLE, {}))
    except ConfigError as error:
        problems.append(str(error))
    catalog = catalog or Catalog.discover(plugins)
    values = TakenNames(catalog).place(values).values
    flat_keys = FlatKeys(catalog)
    placed = flat_keys.place(values)
    flat = placed.values
    try:
        flat = place_workers(flat, ClusterArgs.model_validate(_keys_of("cluster", flat)), flat_keys)
    except ConfigError as error:
        problems.append(str(error))
    except ValidationError:  # said below, with every other family's
        pass
    known = (*FAMILY_OF_KEY, *SELECTABLE, TABLE)
    names = (*known, *CHOOSES, *flat_keys.owners)
    problems += [unknown_key(key, values.get(key), names, catalog) for key in flat if key not in known]
    parsed: dict[str, object] = {}
    for name, family in FAMILIES.items():
        try:
            parsed[name] = family.model_validate(_keys_of(name, flat))
        except ValidationError as error:
            problems += explain(error, family)
    roles: dict[str, RoleTable] = {}
    for role in SELECTABLE:
        try:
            roles[role] = parse_role_table(role, flat.get(role, {}))
        except ConfigError as error:
            problems.append(str(error))
    problems += placed.problems
    if problems:
        raise ConfigError("\n".join(problems))
    scored = roles["reward"].use or roles["group_reward"].use or flat.get("load_debug_rollout_data")
    finetunes = not scored and _needs_no_reward(flat, flat_keys)
    config = RunConfig(**parsed, roles=roles, plugins=plugins, finetunes=finetunes)  # type: ignore[arg-type]  # each family was validated by its own class
    refuse_inert(config)
    return config


def _keys_of(name: str, flat: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in flat.items() if FAMILY_OF_KEY.get(key) == name}


def _needs_no_reward(flat: Mapping[str, Json], flat_keys: FlatKeys) -> bool:
    """Whether the loss reads no advantages, which are all that rewards are for."""
    losses = [each.spec for (role, _), each in flat_keys.chosen(flat).items() if role == "loss"]
    return any(isinstance(spec, LossSpec) and not spec.uses_advantages for spec in losses)
