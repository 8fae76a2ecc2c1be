"""RunConfig: what a run file and a command line say, checked as far as it goes without plugins.

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
    config.rollout.rollout_batch_size

Keys are flat; each role is a table whose `use` selects (`[reward] use = {math = 0.8}`), with settings in
`[reward.math]`. slime's names for settings of our own plugins are accepted flat and land in their section.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from slime_core.catalog import did_you_mean
from slime_core.config.aliases import ALIASES, expand_aliases, inert_aliases
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
from slime_core.config.inert import refuse_inert
from slime_core.config.other_frameworks import called_here
from slime_core.config.plugin_table import TABLE, parse_plugins, plugins_table
from slime_core.config.selection import DEFAULT_USE, Selection, parse_selection
from slime_core.config.settings import explain
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, PluginSet
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
    debug: DebugArgs
    """Which half of a run is left out."""
    run: RunArgs
    """Run folder, model and seed."""
    roles: Mapping[str, Selection]
    """Selections by role."""
    plugins: PluginSet
    """Which plugins are loaded."""

    @property
    def finetunes(self) -> bool:
        """Whether it is a finetuning on given responses: the loss is `sft_loss`, and nothing scores."""
        return list(self.roles["loss"].use) in (["sft_loss"], ["slime-core/sft_loss"]) and not (
            self.roles["reward"].use or self.roles["group_reward"].use or self.debug.load_debug_rollout_data
        )

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


def parse_config(values: Mapping[str, Json]) -> RunConfig:
    """Check and sort the keys of a run file.

    Raises:
        ConfigError: unknown, missing, mistyped, out-of-range or inert keys; all of them in one message.
    """
    flat = expand_aliases(values)
    problems = [_unknown_key(key) for key in flat if key not in FAMILY_OF_KEY and key not in (*SELECTABLE, TABLE)]
    parsed: dict[str, object] = {}
    for name, family in FAMILIES.items():
        mine = {key: value for key, value in flat.items() if FAMILY_OF_KEY.get(key) == name}
        try:
            parsed[name] = family.model_validate(mine)
        except ValidationError as error:
            problems += explain(error, family)
    roles: dict[str, Selection] = {}
    for role in SELECTABLE:
        try:
            roles[role] = parse_selection(role, flat.get(role, {}))
        except ConfigError as error:
            problems.append(str(error))
    problems += inert_aliases(values, roles)
    plugins = PluginSet()
    try:
        plugins = parse_plugins(flat.get(TABLE, {}))
    except ConfigError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    config = RunConfig(**parsed, roles=roles, plugins=plugins)  # type: ignore[arg-type]
    refuse_inert(config)
    return config


def _unknown_key(key: str) -> str:
    if name := called_here(key):
        return f"unknown key {key!r}. Did you mean {name!r}?"
    known = [*FAMILY_OF_KEY, *SELECTABLE, *ALIASES, TABLE]
    return f"unknown key {key!r}.{did_you_mean(key, known) or ' `slime train --help` lists every key.'}"
