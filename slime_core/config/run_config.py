"""RunConfig: what a run file and a command line say, checked as far as it goes without plugins.

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
    config.rollout.rollout_batch_size

Keys are flat; each role is a table whose `use` selects (`[reward] use = {math = 0.8}`), with settings in
`[reward.math]`. slime's names for settings of our own plugins are accepted flat and land in their section.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from pydantic import ValidationError

from slime_core.catalog import did_you_mean
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
from slime_core.config.plugin_table import TABLE, parse_plugins, plugins_table
from slime_core.config.settings import explain
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, SPECS, PluginSet
from slime_core.sample import Json

ALIASES: dict[str, tuple[str, ...]] = {
    "advantage_estimator": ("advantage", "use"),
    "loss_type": ("loss", "use"),
    "eps_clip": ("loss", "policy_loss", "eps_clip"),
    "eps_clip_high": ("loss", "policy_loss", "eps_clip_high"),
    "eps_clip_c": ("loss", "policy_loss", "eps_clip_c"),
    "grpo_std_normalization": ("advantage", "grpo", "grpo_std_normalization"),
    "rewards_normalization": ("advantage", "grpo", "rewards_normalization"),
    "tis_clip": ("correction", "tis", "tis_clip"),
    "tis_clip_low": ("correction", "tis", "tis_clip_low"),
}
"""slime's flat names for what lives in a section here."""

DEFAULT_USE: dict[str, dict[str, float]] = {
    "data_source": {"prompts": 1.0},
    "generator": {"single_turn": 1.0},
    "reward": {},
    "group_reward": {},
    "group_filter": {},
    "sample_filter": {},
    "buffer": {"fifo": 1.0},
    "buffer_filter": {"fifo": 1.0},
    "reward_shaper": {},
    "batch_transform": {},
    "advantage": {"grpo": 1.0},
    "loss": {"policy_loss": 1.0},
    "correction": {},
    "engine": {"local": 1.0},
    "trainer": {"local": 1.0},
    "launcher": {"local": 1.0},
    "tracker": {},
}
"""What a role uses when the run file does not say."""

WEIGHTED = frozenset({"reward", "group_reward"})
"""Roles whose choices are summed with weights."""

OPTIONAL = frozenset(
    {
        "reward",
        "group_reward",
        "group_filter",
        "sample_filter",
        "reward_shaper",
        "batch_transform",
        "correction",
        "tracker",
    }
)
"""Roles that a run can do without; of rewards, one of either kind is needed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a run file says about one role."""

    use: Mapping[str, float]
    """Selected names and their weights."""
    sections: Mapping[str, Mapping[str, Json]]
    """Settings by name, selected or not."""


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
    debug: DebugArgs
    """Which half of a run is left out."""
    run: RunArgs
    """Run folder, model and seed."""
    roles: Mapping[str, Selection]
    """Selections by role."""
    plugins: PluginSet
    """Which plugins are loaded."""

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


def parse_config(values: Mapping[str, Json]) -> RunConfig:
    """Check and sort the keys of a run file.

    Raises:
        ConfigError: unknown, missing, mistyped, out-of-range or inert keys; all of them in one message.
    """
    flat = _expand_aliases(values)
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
            roles[role] = _parse_selection(role, flat.get(role, {}))
        except ConfigError as error:
            problems.append(str(error))
    problems += _inert_aliases(values, roles)
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
    known = [*FAMILY_OF_KEY, *SELECTABLE, *ALIASES, TABLE]
    return f"unknown key {key!r}.{did_you_mean(key, known) or ' `slime train --help` lists every key.'}"


def _expand_aliases(values: Mapping[str, Json]) -> dict[str, Json]:
    flat: dict[str, Json] = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for alias, path in ALIASES.items():
        if alias not in flat:
            continue
        value = flat.pop(alias)
        table = flat
        for part in path[:-1]:
            inner = table.get(part, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{part} must be a table, got {inner!r}")
            table[part] = inner = dict(inner)
            table = inner
        if path[-1] in table and _uses(path, table[path[-1]]) != _uses(path, value):
            raise ConfigError(
                f"{alias} = {value!r} contradicts {'.'.join(path)} = {table[path[-1]]!r}: give one of them"
            )
        table[path[-1]] = value
    return flat


def _uses(path: tuple[str, ...], value: Json) -> Json:
    """A `use` in its one form, so that two spellings of it compare equal."""
    return dict(parse_use(path[0], value)) if path[-1] == "use" else value


def _inert_aliases(values: Mapping[str, Json], roles: Mapping[str, Selection]) -> list[str]:
    """Settings under slime's flat names, of a choice that was not made."""
    return [
        f"{alias} has no effect here: it is a setting of {path[0]} {path[1]!r}, and {path[0]}.use is "
        f"{', '.join(map(repr, roles[path[0]].use)) or 'empty'}"
        for alias, path in ALIASES.items()
        if alias in values and len(path) == 3 and path[0] in roles and path[1] not in roles[path[0]].use
    ]


def _parse_selection(role: str, table: Json) -> Selection:
    if not isinstance(table, dict):
        raise ConfigError(f'{role} = {table!r}: write a table instead, [{role}] use = "{table}"')
    sections: dict[str, Mapping[str, Json]] = {}
    for name, section in table.items():
        if name == "use":
            continue
        if not isinstance(section, dict):
            hint = did_you_mean(name, ["use"]) or f" A setting belongs in the section of what it sets: [{role}.NAME]."
            raise ConfigError(f"[{role}] has a key {name!r} that is no table.{hint}")
        sections[name] = section
    use = parse_use(role, table["use"]) if "use" in table else DEFAULT_USE[role]
    return Selection(use, sections)


def parse_use(role: str, value: Json) -> dict[str, float]:
    """Names and weights of a `use`: "math", ["math", "format"] or {math = 0.8, format = 0.2}.

    Raises:
        ConfigError: another shape, a weight that is no finite number or of what is not weighted, a name twice, or
            several names where one is wanted.
    """
    match value:
        case str():
            use: dict[str, float] = {value: 1.0}
        case list() if all(isinstance(name, str) for name in value):
            use = {str(name): 1.0 for name in value}
            if len(use) < len(value):
                raise ConfigError(f"{role}.use = {value!r} names one twice")
        case dict() if all(map(_is_weight, value.values())):
            use = {name: float(each) for name, each in value.items()}  # type: ignore[arg-type]
        case _:
            raise ConfigError(f'{role}.use = {value!r}: write "NAME", or a table of finite weights {{NAME = 1.0}}')
    if len(use) > 1 and not SPECS[role].many:
        raise ConfigError(f"{role}.use names {', '.join(use)}: this role takes one")
    if role not in WEIGHTED and any(weight != 1.0 for weight in use.values()):
        raise ConfigError(f"{role}.use = {value!r}: a weight has no effect here, only a reward's has")
    return use


def _is_weight(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
