"""Arguments of a program as settings: a settings model, and the command line for a user's values.

A program has hundreds of arguments, which differ by release, so they are read from the program itself.

Example:

    arguments = [Argument("log_level", ArgumentKind.TEXT, "How much it logs.")]
    model = arguments_model("ServerArguments", arguments)
    list(command_line(arguments, {"log_level": "info"}))            # ["--log-level", "info"]
"""

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, JsonValue, create_model
from pydantic_core import PydanticCustomError

from slime_core.roles import Settings
from slime_core.sample import Json


class ArgumentKind(enum.Enum):
    """Type of an argument's value."""

    INTEGER = "integer"
    """A whole number."""
    NUMBER = "number"
    """A number."""
    TEXT = "text"
    """Text, also a number or a size such as 32k."""
    SWITCH = "switch"
    """A flag without a value."""
    JSON = "json"
    """A table or list as JSON, or text."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a program."""

    name: str
    """Name as a key of a run file: `mem_fraction_static`."""
    kind: ArgumentKind
    """Type of its value."""
    help: str = ""
    """The program's help text."""
    default: Json = None
    """Default value; None if the program decides."""
    choices: tuple[str | int, ...] = ()
    """Allowed values; empty if there is no list."""
    many: bool = False
    """Whether it takes several values."""
    negative: str = ""
    """The argument that turns a switch off, such as `no_enable_x`. Empty: omitting the switch turns it off."""
    blocked_because: str = ""
    """Why users cannot set it, such as "follows from hf_checkpoint"; empty if they can."""


def arguments_model(title: str, arguments: Iterable[Argument]) -> type[Settings]:
    """A settings model with a field for each argument; `model_fields_set` lists the fields that were set.

    Args:
        title: name of the class.
        arguments: the program's arguments.
    """
    fields = {each.name: _field(each) for each in arguments}
    return cast(type[Settings], create_model(title, __base__=_Arguments, **fields))  # type: ignore[call-overload]  # fields are known only at run time


def command_line(arguments: Iterable[Argument], values: Mapping[str, Json]) -> Iterator[str]:
    """Values as command-line words. A false switch is omitted or negated; null is omitted."""
    known = {each.name: each for each in arguments}
    for name, value in values.items():
        if value is False and name in known and known[name].negative:
            yield _flag(known[name].negative)
        if value is False or value is None:
            continue
        yield _flag(name)
        if value is not True:
            yield from map(_text, value) if isinstance(value, list) and _takes_many(known.get(name)) else [_text(value)]


class _Arguments(Settings, validate_default=False, protected_namespaces=()):
    """Base of these models. Defaults are the program's and are not validated."""


def _field(argument: Argument) -> tuple[object, object]:
    text = f"Cannot be set, because it {argument.blocked_because}." if argument.blocked_because else argument.help
    return _annotation(argument), Field(argument.default, description=text)


def _annotation(argument: Argument) -> object:
    if argument.blocked_because:
        return Annotated[None, BeforeValidator(_refusing(argument.blocked_because))]
    one: object = _TYPES[argument.kind]
    if argument.choices:
        one = Annotated[Literal[argument.choices], BeforeValidator(_spelled(argument.choices))]
    if argument.many:
        return Annotated[list[one], BeforeValidator(_several)]  # type: ignore[valid-type]  # a type created at run time
    return one


def _refusing(why: str) -> Callable[[object], object]:
    def refuse(value: object) -> object:
        raise PydanticCustomError("not_free", "this argument cannot be set, because it {why}", {"why": why})

    return refuse


def _spelled(choices: tuple[str | int, ...]) -> Callable[[object], object]:
    """Converts a choice that was parsed as a number or as true back to its text."""
    texts = {str(each).lower(): each for each in choices}
    return lambda value: value if value in choices else texts.get(str(value).lower(), value)


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _several(value: object) -> object:
    return value if isinstance(value, list) else [value]


_TYPES: Mapping[ArgumentKind, object] = {
    ArgumentKind.INTEGER: int,
    ArgumentKind.NUMBER: float,
    ArgumentKind.TEXT: Annotated[str, BeforeValidator(_as_text)],
    ArgumentKind.SWITCH: bool,
    ArgumentKind.JSON: JsonValue,
}


def _takes_many(argument: Argument | None) -> bool:
    return argument is None or argument.many


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
