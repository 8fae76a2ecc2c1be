"""The table of a role in a run file, the choices of a role in a plan, and the typed settings of each choice.

Example:

    settings = read_settings("reward", "judge", registered.spec, {"url": "http://…", "key": "$env:JUDGE_KEY"})
    roles.one(EngineSpec).spec.bf16                     # a ResolvedChoice[EngineSpec]
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Generic, cast, get_args

from pydantic import BaseModel, PydanticUndefinedAnnotation, PydanticUserError, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python
from typing_extensions import TypeVar

from slime_core.catalog import RegisteredChoice
from slime_core.config.run_file import short_repr, toml_key
from slime_core.errors import ConfigError, PluginError, did_you_mean
from slime_core.roles import SPECS, Choice, Settings, Spec
from slime_core.sample import Json
from slime_core.secrets import REDACTOR

# RoleTable: a role's table in a run file, `[reward] use = {math = 0.8}` and settings in `[reward.math]`.

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
"""Default choices by role, for roles without `use` in the run file."""


WEIGHTED = frozenset({"reward", "group_reward"})
"""Roles whose choices are summed with weights."""


OPTIONAL = frozenset(role for role, use in DEFAULT_USE.items() if not use)
"""Roles that may have no choice. A run still needs a reward or a group reward."""


@dataclass(frozen=True, slots=True)
class RoleTable:
    """One role's table in a run file."""

    use: Mapping[str, float]
    """Selected names and their weights."""
    sections: Mapping[str, Mapping[str, Json]]
    """Settings by name, selected or not."""


def parse_role_table(role: str, table: Json) -> RoleTable:
    """Parse a role's table. Raises ConfigError: it is not a table, or has a key other than `use` and sections."""
    if not isinstance(table, dict):
        raise ConfigError(f'{role} = {table!r}: write a table instead, [{role}] use = "{table}"')
    sections: dict[str, Mapping[str, Json]] = {}
    for name, section in table.items():
        if name == "use":
            continue
        if not isinstance(section, dict):
            hint = did_you_mean(name, ["use"]) or f" Write a setting in the table of its choice, [{role}.NAME]."
            raise ConfigError(f"[{role}] has a key {name!r} that is not a table.{hint}")
        sections[name] = section
    use = parse_use(role, table["use"]) if "use" in table else DEFAULT_USE[role]
    return RoleTable(use, sections)


def parse_use(role: str, value: Json) -> dict[str, float]:
    """Parse the names and weights of a `use`: "math", ["math", "format"] or {math = 0.8, format = 0.2}.

    Raises:
        ConfigError: another shape, a weight that is not finite, a weight in a role without weights, a repeated name,
            or several names in a role that takes one.
    """
    match value:
        case str():
            use: dict[str, float] = {value: 1.0}
        case list() if all(isinstance(name, str) for name in value):
            use = {str(name): 1.0 for name in value}
            if len(use) < len(value):
                raise ConfigError(f"{role}.use = {value!r} repeats a name")
        case dict() if all(map(_is_weight, value.values())):
            use = {name: float(each) for name, each in value.items()}  # type: ignore[arg-type]  # `_is_weight` checked the type
        case _:
            raise ConfigError(f'{role}.use = {value!r}: write "NAME", or a table of finite weights {{NAME = 1.0}}')
    if len(use) > 1 and not SPECS[role].many:
        raise ConfigError(f"{role}.use names {', '.join(use)}: this role takes only one")
    if role not in WEIGHTED and any(weight != 1.0 for weight in use.values()):
        raise ConfigError(f"{role}.use = {value!r}: only rewards and group rewards have weights")
    return use


def _is_weight(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


# ResolvedChoice: one choice of one role, ready to build; and ChosenRoles, all choices of a run.

SpecT = TypeVar("SpecT", bound=Spec[object], covariant=True, default=Spec[object])
OneT = TypeVar("OneT", bound=Spec[object])


@dataclass(frozen=True, slots=True)
class ResolvedChoice(Generic[SpecT]):
    """One choice of one role."""

    reference: str
    """Its name in the run file."""
    registered: RegisteredChoice[SpecT]
    """Its spec and where it comes from."""
    settings: Settings
    """Its validated settings."""
    weight: float
    """Its weight in the sum of rewards; 1 in other roles."""

    @property
    def spec(self) -> SpecT:
        """The spec that its plugin registered."""
        return self.registered.spec

    @property
    def plugin(self) -> str:
        """The plugin that registered it."""
        return self.registered.plugin

    def to_choice(self) -> Choice:
        """Return what another process needs to build this choice."""
        return Choice(self.spec.role, self.registered.qualified, self.plugin, self.settings)


class ChosenRoles(dict[str, tuple[ResolvedChoice, ...]]):
    """The choices of each role by the role's name, in order."""

    def all(self, spec: type[OneT]) -> tuple[ResolvedChoice[OneT], ...]:
        """The choices of the role of this spec class."""
        # The catalog accepts only specs of the class in `roles.SPECS` for a role.
        return cast(tuple[ResolvedChoice[OneT], ...], self[spec.role])

    def one(self, spec: type[OneT]) -> ResolvedChoice[OneT]:
        """The single choice of a role that must have one."""
        return self.all(spec)[0]

    def maybe(self, spec: type[OneT]) -> ResolvedChoice[OneT] | None:
        """The single choice of a role that may have none."""
        return next(iter(self.all(spec)), None)


# Settings of choices: validates a section of the run file by the choice's settings model.


def read_settings(role: str, name: str, spec: Spec[object], section: Mapping[str, Json]) -> Settings:
    """Validate a section and return the choice's typed settings.

    Raises:
        ConfigError: a key is unknown, missing, mistyped or out of range, or a variable is not set; all in one message.
        PluginError: pydantic cannot build the model.
    """
    prefix = f"{role}.{toml_key(name)}"
    settings = _read(spec.model, section, prefix)
    installed = spec.installed
    if installed is None or not isinstance(table := section.get(installed.key), dict) or not table:
        return settings
    lists = f"`slime plugins show {role}/{name}` lists them"
    passed_on = _read(installed.model(section), table, f"{prefix}.{installed.key}", spec.model.model_fields, lists)
    return settings.model_copy(update={installed.key: passed_on.model_dump(exclude_unset=True)})


def _read(
    model: type[Settings], given: Mapping[str, Json], prefix: str, parent_keys: Iterable[str] = (), lists: str = ""
) -> Settings:
    try:
        model.model_rebuild()  # `Settings` defers the build until a model is used
        return model.model_validate(dict(given))
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        why = str(error).partition("\n")[0]
        raise PluginError(f"[{prefix}]: pydantic cannot build its settings model {model.__name__}: {why}") from error
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, model, prefix, parent_keys, lists))) from None


def show_settings(settings: Settings) -> dict[str, Json]:
    """Settings as plain data, with `$env:NAME` in place of values read from the environment."""
    return cast(dict[str, Json], to_jsonable_python(REDACTOR.redact_data(settings.model_dump())))


def explain(
    error: ValidationError,
    model: type[BaseModel],
    prefix: str = "",
    parent_keys: Iterable[str] = (),
    lists: str = "",
) -> list[str]:
    """Return one sentence for each validation error, with secrets redacted.

    Args:
        error: pydantic's error.
        model: the settings model.
        prefix: path of the model's table, such as "engine.local".
        parent_keys: keys of the parent table, suggested for a misplaced key.
        lists: the command that lists all keys, if too many to name.
    """
    return [
        REDACTOR.redact(_sentence(item, model, prefix, tuple(parent_keys), lists))
        for item in error.errors(include_url=False)
    ]


def _sentence(item: ErrorDetails, model: type[BaseModel], prefix: str, parent_keys: tuple[str, ...], lists: str) -> str:
    place = item["loc"]
    where = ".".join(filter(None, (prefix, *map(str, place))))
    match item["type"]:
        case "missing":
            has_flag = bool(prefix) or len(place) == 1
            name = where.replace('"', "") if prefix else where.replace("_", "-")
            flag = f" or pass --{name}" if has_flag else ""
            return f"{where} is required: set it in the run file{flag}"
        case "extra_forbidden":
            owner, key = _model_at(model, item["loc"][:-1]), str(item["loc"][-1])
            known = list(owner.model_fields) if owner else []
            section = where.removesuffix(f".{key}")
            near = did_you_mean(key, (*known, *parent_keys))
            has = f" {len(known)} keys, {lists}" if lists else f": {', '.join(known) or 'none'}"
            return f"unknown setting {where}.{near} [{section}] has{has}."
        case "literal_secret":
            return f"{where}: {item['msg']}"
    reason = item["msg"].removeprefix("Value error, ")  # pydantic's prefix for errors of our own validators
    return f"{where} = {short_repr(REDACTOR.redact_data(item['input']))}: {reason[0].lower()}{reason[1:]}"


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    for step in path:
        if isinstance(step, int) or step not in model.model_fields:
            continue  # a position in a list, a key of a mapping, or a name that pydantic gives to one of several types
        inner = next(_models(model.model_fields[step].annotation), None)
        if inner is None:
            return None
        model = inner
    return model


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
