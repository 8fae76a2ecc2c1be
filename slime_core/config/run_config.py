"""RunConfig: what a run file and a command line say, checked as far as it goes without plugins.

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
    config.rollout.rollout_batch_size

Keys are flat; each role is a table whose `use` selects (`[reward] use = {math = 0.8}`), with settings in
`[reward.math]`. Settings that their specs declare as flat keys are accepted flat and land in their section.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from slime_core.catalog import Catalog
from slime_core.config.cluster import ClusterArgs
from slime_core.config.companions import CriticArgs, DistillationArgs, ReferenceArgs
from slime_core.config.families import (
    FAMILIES,
    FAMILY_OF_KEY,
    DataArgs,
    DebugArgs,
    EvalArgs,
    OptimArgs,
    RolloutArgs,
    RunArgs,
)
from slime_core.config.flat_keys import CHOOSES, FlatKeys
from slime_core.config.inert import refuse_inert
from slime_core.config.plugin_table import TABLE, parse_plugins, plugins_table
from slime_core.config.role_table import DEFAULT_USE, RoleTable, parse_role_table
from slime_core.config.served import ServedArgs
from slime_core.config.settings import explain
from slime_core.config.taken_names import TakenNames
from slime_core.config.unknown_key import unknown_key
from slime_core.config.workers import place_workers
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, LossSpec, PluginSet
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A whole configuration; each part of the house is handed its family only."""

    data: DataArgs
    """Prompts."""
    rollout: RolloutArgs
    """Rollout."""
    evaluation: EvalArgs
    """Evaluation."""
    optim: OptimArgs
    """Optimization."""
    reference: ReferenceArgs
    """Reference model and KL terms."""
    distillation: DistillationArgs
    """On-policy distillation."""
    critic: CriticArgs
    """Critic."""
    served: ServedArgs
    """Models beside the policy."""
    cluster: ClusterArgs
    """How many workers."""
    debug: DebugArgs
    """Which half of a run is left out."""
    run: RunArgs
    """Run folder, model and seed."""
    roles: Mapping[str, RoleTable]
    """Selections by role."""
    plugins: PluginSet
    """Which plugins are loaded."""
    finetunes: bool
    """Whether it is a finetuning on responses that are given: nothing scores, and its loss reads no advantages."""

    def to_dict(self) -> dict[str, Json]:
        """The configuration as a run file's keys, defaults written out."""
        flat: dict[str, Json] = {}
        for family in FAMILIES:
            flat.update(getattr(self, family).model_dump(mode="json", exclude_none=True))
        for role, chosen in self.roles.items():
            table: dict[str, Json] = {"use": dict(chosen.use)}
            table.update({name: dict(section) for name, section in chosen.sections.items()})
            flat[role] = table
        if plugins := plugins_table(self.plugins):
            flat[TABLE] = plugins
        return flat


def default_settings() -> dict[str, Json]:
    """What every key is that a run file does not name, those without a default left out."""
    flat: dict[str, Json] = {}
    for family in FAMILIES.values():
        flat.update(family.model_construct().model_dump(mode="json", exclude_none=True, warnings=False))
    return flat | {role: {"use": dict(use)} for role, use in DEFAULT_USE.items()}


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
    config = RunConfig(**parsed, roles=roles, plugins=plugins, finetunes=finetunes)  # type: ignore[arg-type]
    refuse_inert(config)
    return config


def _keys_of(name: str, flat: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in flat.items() if FAMILY_OF_KEY.get(key) == name}


def _needs_no_reward(flat: Mapping[str, Json], flat_keys: FlatKeys) -> bool:
    """Whether the loss reads no advantages, which are all that rewards are for."""
    losses = [each.spec for (role, _), each in flat_keys.chosen(flat).items() if role == "loss"]
    return any(isinstance(spec, LossSpec) and not spec.uses_advantages for spec in losses)
