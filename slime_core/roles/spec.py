"""Defines how a plugin offers a choice: `Spec` and `Settings`, and the types that a factory receives.

A spec holds a name, a factory, typed settings and one line of help. The core calls `factory(settings, setup)` once
per run, after all validation and before anything starts.

Example:

    class Mine(Settings):
        workers: Workers = Field(2, description="Processes.")
        weight: Coefficient = Field(0.1, description="Of its term in the loss.")

    RewardSpec("exact", ExactMatch, summary="1.0 when the stripped response equals the label")
"""

import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    runtime_checkable,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from slime_core.roles.generation import RANGES, GenerateOutput, GenerateRequest, Range, Tokenizer
from slime_core.sample import Json
from slime_core.secrets import PREFIX, REDACTOR, read_variable


class Settings(BaseModel):
    """Base of every settings model: frozen; rejects unknown keys, NaN, infinity, and a bool for a number.

    A string `$env:NAME` is read from the environment and never shown. A `SecretStr` accepts no other form.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,  # most models are never used
    )
    _reads_environment: ClassVar[bool] = True

    @field_validator("*", mode="before")
    @classmethod
    def _check_given(cls, value: object, info: ValidationInfo) -> object:
        annotation = cls.model_fields[info.field_name or ""].annotation
        wanted = set(_alternatives(annotation))
        if _has_bool_for_number(value, annotation):
            raise PydanticCustomError("bool_for_number", "input should be a number")
        read = _read(value, allowed=cls._reads_environment)
        if isinstance(read, str) and SecretStr in wanted and read and not REDACTOR.knows(read):
            line = f'{info.field_name} = "{PREFIX}{(info.field_name or "").upper()}"'
            raise PydanticCustomError("literal_secret", f"a secret is read from the environment, write {line}")
        return read

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            is_secret = REDACTOR.within(value) or REDACTOR.redact(repr(value)) != repr(value)
            yield name, REDACTOR.redact_data(value) if is_secret else value

    def __getstate__(self) -> dict[object, object]:
        # The receiving process must redact the same values.
        return {**super().__getstate__(), "secrets": REDACTOR.within(self.model_dump())}

    def __setstate__(self, state: dict[object, object]) -> None:
        for value, words in cast(Mapping[str, str], state["secrets"]).items():
            REDACTOR.add(value, words)
        super().__setstate__({key: value for key, value in state.items() if key != "secrets"})


def _read(value: object, *, allowed: bool) -> object:
    """The value with each `$env:NAME` in it replaced from the environment."""
    match value:
        case str() if value.startswith(PREFIX):
            if not allowed:
                raise PydanticCustomError("no_variable", "only settings of plugins are read from the environment")
            try:
                return read_variable(value)
            except LookupError as error:
                raise PydanticCustomError("missing_variable", "{why}", {"why": str(error)}) from None
        case dict():
            return {key: _read(each, allowed=allowed) for key, each in value.items()}
        case list():
            return [_read(each, allowed=allowed) for each in value]
        case SecretStr() if (words := value.get_secret_value()).startswith(PREFIX):  # a default
            return _read(words, allowed=allowed)
    return value


def _has_bool_for_number(value: object, annotation: object) -> bool:
    """Whether a bool stands where only a number is allowed, also within lists and tables."""
    kinds = set(_alternatives(annotation))
    if isinstance(value, bool):
        takes_number = any(isinstance(kind, type) and issubclass(kind, int | float) for kind in kinds)
        return takes_number and bool not in kinds
    held = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    inner = [get_args(each) for each in kinds if get_origin(each) in (dict, list, tuple)]
    return any(_has_bool_for_number(each, last) for each in held for *_, last in inner)


def _alternatives(annotation: object) -> Iterator[object]:
    """Possible types of a field, without bounds."""
    match get_origin(annotation), get_args(annotation):
        case (origin, (first, *_)) if origin is Annotated:
            yield from _alternatives(first)
        case (origin, several) if origin in (Union, UnionType):
            for each in several:
                yield from _alternatives(each)
        case _:
            yield annotation


class Stability(enum.Enum):
    """Stability promise of a role, with its hook, Protocol and Spec, or of an event and its hook."""

    STABLE = "stable"
    """Changes only with SLIME_API. Removals are deprecated for a release first."""
    PROVISIONAL = "provisional"
    """May change in any release; the changelog describes how to migrate."""


class Make(Protocol):
    """Builds another registered choice by role and name, so that a plugin can wrap it."""

    def __call__(self, role: str, name: str, **settings: object) -> object:
        """Return the object that the named spec's factory makes from these settings."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What every factory receives in addition to its settings."""

    make: Make
    """`setup.make("reward", "math")` builds another choice."""
    seed: int
    """The run's seed; derive from it with `slime_core.seeds.derive_seed`."""
    models: "Mapping[str, ServedModel]" = field(default_factory=dict, kw_only=True)
    """Models that the run serves in addition to the policy, by name; empty outside a run and in worker processes."""


@dataclass(frozen=True, slots=True)
class InstalledSettings:
    """Settings that a choice passes on to installed software."""

    key: str
    """The setting that holds them, a `dict[str, JsonValue]`: `server` in `[engine.NAME.server]`."""
    model: Callable[[Mapping[str, Json]], type[Settings]]
    """Makes their model from the choice's section as written. Its defaults are shown but not passed on."""


_RoleT = TypeVar("_RoleT", covariant=True)


@dataclass(frozen=True)
class Spec(Generic[_RoleT]):
    """One registered choice of a role. A run that needs more than a spec declares is rejected before it starts."""

    role: ClassVar[str] = ""
    """Name of the role, as `slime plan` and the run file write it."""
    many: ClassVar[bool] = False
    """Whether a run may use several choices of this role at once."""
    added: ClassVar[str] = "0.1"
    """The release that added the role."""
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    """Its stability promise."""
    selectable: ClassVar[bool] = True
    """Whether run files select choices. If not, all of them are used."""
    also_chosen_by: ClassVar[str] = ""
    """Another key, and flag, that selects the role's choice: slime's `loss_type`."""

    name: str
    """Name for run files; unique within the plugin and the role."""
    factory: Callable[..., _RoleT]
    """`factory(settings, setup)`; import heavy libraries inside it."""
    settings: type[Settings] | Callable[[], type[Settings]] = Settings
    """Model of its section in the run file; `Settings` for none. If it needs a heavy library: a function that makes
    it, called once. Other processes import the model by its module and name."""
    summary: str = ""
    """One line for `slime plugins list --load`."""
    flat_keys: Sequence[str] | Callable[[], Sequence[str]] = field(default=(), kw_only=True)
    """Settings that are also keys and flags of a run (`lora_rank`, `--lora-rank`), or a function that lists them."""
    flat_prefix: str = field(default="", kw_only=True)
    """Makes all settings keys and flags with this prefix: `mine_` turns `dtype` into `mine_dtype`."""
    installed: InstalledSettings | None = field(default=None, kw_only=True)
    """Settings that it passes on to installed software; with a `flat_prefix` they are keys and flags, too."""
    prefixed: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    """Prefix -> table of its settings whose keys become keys and flags of the run: {"router_": "router"} turns
    `policy` in `[engine.NAME.router]` into `router_policy`."""

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"{type(self).__name__} name {self.name!r}: use letters, digits, '-' and '_'")
        settings: object = self.settings
        if isinstance(settings, type) and not issubclass(settings, Settings):
            raise TypeError(f"{self._label}: settings must be a subclass of slime_core.Settings")
        if not callable(settings):
            raise TypeError(f"{self._label}: settings must be a model, or a function that makes one")
        if not callable(self.factory):
            raise TypeError(f"{self._label}: factory must be callable as factory(settings, setup)")
        for what, prefix in [("flat_prefix", self.flat_prefix or "_"), *(("prefixed", each) for each in self.prefixed)]:
            if not (prefix.isidentifier() and prefix.endswith("_")):
                raise ValueError(f"{self._label}: {what} {prefix!r} must be a name that ends in '_'")
        if isinstance(self.flat_keys, str):
            raise TypeError(f"{self._label}: flat_keys must be several names, write ({self.flat_keys!r},)")
        if isinstance(settings, type):
            named = [("installed", self.installed.key)] if self.installed else []
            named += [("prefixed", key) for key in self.prefixed.values()]
            named += [("flat_keys", key) for key in (() if callable(self.flat_keys) else self.flat_keys)]
            for what, key in named:
                if key not in self.model.model_fields:
                    raise ValueError(f"{self._label}: {what} names {key!r}, which is none of its settings")

    @classmethod
    def from_function(cls, name: str, function: Callable[..., Any], summary: str = "") -> Self:
        """A spec whose factory returns this function, without settings."""
        # Keep the function's origin for display, not this factory's.
        factory: Callable[..., Any] = functools.update_wrapper(lambda settings, setup: function, function, updated=())
        return cls(name, factory, summary=summary)

    @property
    def is_late(self) -> bool:
        """Whether the settings model is made on first use."""
        return not isinstance(self.settings, type)

    @functools.cached_property
    def model(self) -> type[Settings]:
        """The settings model, made at first use; the catalog's specs raise PluginError if it cannot be made."""
        return self.settings if isinstance(self.settings, type) else self.settings()

    @functools.cached_property
    def flat_names(self) -> tuple[str, ...]:
        """`flat_keys`, listed at first use; the catalog's specs raise PluginError if they cannot be listed."""
        return tuple(self.flat_keys() if callable(self.flat_keys) else self.flat_keys)

    @property
    def _label(self) -> str:
        return f"{type(self).__name__} {self.name!r}"


@runtime_checkable
class ServedModel(Protocol):
    """A frozen model on separate engines."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which may differ from the policy's."""

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generate one continuation, as an engine does; the weight version is 0.

        Raises:
            SlimeError: the model is unavailable, or does not support the request.
        """


# Setting types with bounds that several keys share. Other keys have their bounds in their `Field`.

Positive = Annotated[int, Field(ge=1, le=10**9)]
"""A number of samples, tokens, steps or rollouts."""
Workers = Annotated[int, Field(ge=1, le=4096)]
"""A number of processes, GPUs, nodes or engines."""
Weight = Annotated[float, Field(gt=0.0, le=1e6)]
"""A relative weight."""
Coefficient = Annotated[float, Field(ge=0.0, le=1e6)]
"""A factor of a term."""
Number = Annotated[float, Field(ge=-1e9, le=1e9)]
"""A reward, or a weight that may be negative."""
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
"""An id of a vocabulary."""


def _float(given: Range) -> object:
    return Field(ge=None if given.is_open else given.least, gt=given.least if given.is_open else None, le=given.most)


def _not_zero(value: int) -> int:
    if value == 0:
        raise ValueError("0 keeps no candidate: give 1 or more, or -1 for off")
    return value


Temperature = Annotated[float, _float(RANGES["temperature"])]
TopP = Annotated[float, _float(RANGES["top_p"])]
TopK = Annotated[int, Field(ge=-1, le=RANGES["top_k"].most), AfterValidator(_not_zero)]
MinP = Annotated[float, _float(RANGES["min_p"])]
MinNewTokens = Annotated[int, Field(ge=0, le=RANGES["min_new_tokens"].most)]
RepetitionPenalty = Annotated[float, _float(RANGES["repetition_penalty"])]
Penalty = Annotated[float, _float(RANGES["presence_penalty"])]
