"""Aliases: slime's flat names for what lives in a section here; each lands in the section of the choice that is made.

Example:

    expand_aliases({"advantage_estimator": "gspo", "eps_clip": 3e-4})
    # {"advantage": {"use": "grpo"}, "loss": {"use": "gspo", "gspo": {"eps_clip": 3e-4}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slime_core.config.selection import DEFAULT_USE, Selection, parse_use
from slime_core.errors import ConfigError
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Alias:
    """Where a flat name of slime's belongs."""

    role: str
    """The role whose table it is in."""
    key: str
    """`use`, or a setting of a choice."""
    choices: tuple[str, ...] = ()
    """The choices that have this setting; none of `use`."""

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Every place that it may mean."""
        return tuple((self.role, choice, self.key) for choice in self.choices) or ((self.role, self.key),)

    def path(self, use: Mapping[str, float]) -> tuple[str, ...]:
        """The place that it means with these choices; the first where none of them has it."""
        return next((path for path in self.paths if path[1] in use), self.paths[0])


_CLIPPED = ("policy_loss", "gspo", "cispo")
_ESTIMATORS = {"gspo": "grpo", "cispo": "grpo"}
"""slime's estimators that are a loss here, and the advantages that go with them."""

ALIASES: dict[str, Alias] = {
    "advantage_estimator": Alias("advantage", "use"),
    "loss_type": Alias("loss", "use"),
    "eps_clip": Alias("loss", "eps_clip", _CLIPPED),
    "eps_clip_high": Alias("loss", "eps_clip_high", _CLIPPED),
    "eps_clip_c": Alias("loss", "eps_clip_c", ("policy_loss", "gspo")),
    "entropy_coef": Alias("loss", "entropy_coef", _CLIPPED),
    "use_opsm": Alias("loss", "use_opsm", _CLIPPED),
    "opsm_delta": Alias("loss", "opsm_delta", _CLIPPED),
    "grpo_std_normalization": Alias("advantage", "grpo_std_normalization", ("grpo",)),
    "rewards_normalization": Alias("advantage", "rewards_normalization", ("grpo",)),
    "normalize_advantages": Alias(
        "advantage",
        "normalize_advantages",
        ("grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo", "gdpo"),
    ),
    "gamma": Alias("advantage", "gamma", ("reinforce_plus_plus", "ppo")),
    "lambd": Alias("advantage", "lambd", ("ppo",)),
    "tis_clip": Alias("correction", "tis_clip", ("tis", "icepop")),
    "tis_clip_low": Alias("correction", "tis_clip_low", ("tis", "icepop")),
    **{
        key: Alias("trainer", key, ("local",))
        for key in (
            "lora_rank",
            "lora_alpha",
            "lora_target_modules",
            "only_train_params_name_list",
            "freeze_params_name_list",
            "gradient_checkpointing",
        )
    },
}
"""slime's flat names, and peft's, for what lives in a section here."""


def expand_aliases(values: Mapping[str, Json]) -> dict[str, Json]:
    """The keys of a run file with every alias at its place.

    Raises:
        ConfigError: an alias contradicts what stands at its place already, or its table is none.
    """
    flat: dict[str, Json] = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    estimator = flat.get("advantage_estimator")
    if isinstance(estimator, str) and estimator in _ESTIMATORS:
        flat["advantage_estimator"] = _ESTIMATORS[estimator]
        _place(flat, f"advantage_estimator = {estimator!r}", ("loss", "use"), estimator)
    for name, alias in ALIASES.items():
        if name in flat:
            _place(flat, f"{name} = {values[name]!r}", alias.path(_chosen(flat, alias.role)), flat.pop(name))
    return flat


def places_of(name: str, value: object) -> tuple[tuple[str, ...], ...]:
    """Every place that an alias of this value may land in: `advantage_estimator = "gspo"` chooses a loss as well."""
    chooses_loss = name == "advantage_estimator" and value in _ESTIMATORS
    return (*ALIASES[name].paths, *((("loss", "use"), ("loss_type",)) if chooses_loss else ()))


def inert_aliases(values: Mapping[str, Json], roles: Mapping[str, Selection]) -> list[str]:
    """Settings under slime's flat names, of a choice that was not made."""
    return [
        f"{name} has no effect here: it is a setting of {alias.role} {' or '.join(map(repr, alias.choices))}, "
        f"and {alias.role}.use is {', '.join(map(repr, roles[alias.role].use)) or 'empty'}"
        for name, alias in ALIASES.items()
        if name in values
        and alias.choices
        and alias.role in roles
        and roles[alias.role].use.keys().isdisjoint(alias.choices)
    ]


def _place(flat: dict[str, Json], said: str, path: tuple[str, ...], value: Json) -> None:
    """Put a value at a path of nested tables, which it may agree with."""
    table = flat
    for part in path[:-1]:
        inner = table.get(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{part} must be a table, got {inner!r}")
        table[part] = inner = dict(inner)
        table = inner
    if path[-1] in table and _comparable(path, table[path[-1]]) != _comparable(path, value):
        raise ConfigError(f"{said} contradicts {'.'.join(path)} = {table[path[-1]]!r}: give one of them")
    table[path[-1]] = value


def _chosen(flat: Mapping[str, Json], role: str) -> Mapping[str, float]:
    """What a role uses, as far as it is written well; what is not is refused later, with its place."""
    table = flat.get(role)
    if not isinstance(table, dict) or "use" not in table:
        return DEFAULT_USE[role]
    try:
        return parse_use(role, table["use"])
    except ConfigError:
        return {}


def _comparable(path: tuple[str, ...], value: Json) -> Json:
    """A `use` in its one form, so that two spellings of it compare equal."""
    return dict(parse_use(path[0], value)) if path[-1] == "use" else value
