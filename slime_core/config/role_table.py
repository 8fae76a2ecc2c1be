"""RoleTable: what a run file's table of a role says, `[reward] use = {math = 0.8}` and settings in `[reward.math]`.

Example:

    parse_role_table("reward", {"use": ["math"], "math": {"timeout_s": 2.0}}).use        # {"math": 1.0}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import SPECS
from slime_core.sample import Json

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
    "transport": {},
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
        "transport",
        "tracker",
    }
)
"""Roles that a run can do without; of rewards, one of either kind is needed."""


@dataclass(frozen=True, slots=True)
class RoleTable:
    """What a run file says about one role."""

    use: Mapping[str, float]
    """Selected names and their weights."""
    sections: Mapping[str, Mapping[str, Json]]
    """Settings by name, selected or not."""


def parse_role_table(role: str, table: Json) -> RoleTable:
    """What a role's table says.

    Raises:
        ConfigError: it is not a table, or holds what is neither `use` nor a section.
    """
    if not isinstance(table, dict):
        raise ConfigError(f'{role} = {table!r}: write a table instead, [{role}] use = "{table}"')
    sections: dict[str, Mapping[str, Json]] = {}
    for name, section in table.items():
        if name == "use":
            continue
        if not isinstance(section, dict):
            owner = table["use"] if isinstance(table.get("use"), str) else "NAME"
            hint = (
                did_you_mean(name, ["use"]) or f" A setting belongs in the section of what it sets: [{role}.{owner}]."
            )
            raise ConfigError(f"[{role}] has a key {name!r} that is not a table.{hint}")
        sections[name] = section
    use = parse_use(role, table["use"]) if "use" in table else DEFAULT_USE[role]
    return RoleTable(use, sections)


def parse_use(role: str, value: Json) -> dict[str, float]:
    """Names and weights of a `use`: "math", ["math", "format"] or {math = 0.8, format = 0.2}.

    Raises:
        ConfigError: another shape, a weight that is not a finite number or of what is not weighted, a name twice, or
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
            use = {name: float(each) for name, each in value.items()}  # type: ignore[arg-type]  # `_is_weight` has seen that it is a number
        case _:
            raise ConfigError(f'{role}.use = {value!r}: write "NAME", or a table of finite weights {{NAME = 1.0}}')
    if len(use) > 1 and not SPECS[role].many:
        raise ConfigError(f"{role}.use names {', '.join(use)}: this role takes one")
    if role not in WEIGHTED and any(weight != 1.0 for weight in use.values()):
        raise ConfigError(f"{role}.use = {value!r}: a weight has no effect here, only a reward's has")
    return use


def _is_weight(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
