"""Flags: the option of a typed key, with its range and its default; and a value as it is typed.

Example:

    option_of("lr", OptimArgs.model_fields["lr"], allowed="over 0")        # --lr FLOAT  Peak learning rate. [over 0; …]
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slime_core.config import MAX_DEPTH, refuse_unfit, shown
from slime_core.errors import ConfigError
from slime_core.sample import Json

_FAR = 10**6
"""Upper bounds from here on only catch slips of the finger; no help names them."""


def flag(key: str) -> str:
    """How a key is typed on the command line."""
    return f"--{key.replace('_', '-')}"


def literal(text: str) -> Json:
    """A value as it is typed: JSON, True or False as Python writes them, or else text.

    Raises:
        ConfigError: JSON that no key takes, for example a NUL character in a text.
    """
    try:
        value: Json = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
    except RecursionError:
        raise ConfigError(f"{shown(text)} is nested over {MAX_DEPTH} deep, which no key takes: flatten it") from None
    refuse_unfit(value, shown(text), allow_null=True)
    return value


def typed_value(arguments: Sequence[str], name: str) -> Json:
    """What follows a flag, or stands behind its '='; None where it is not there."""
    for argument, following in itertools.pairwise((*arguments, "")):
        typed, equals, value = argument.partition("=")
        if typed == name:
            return literal(value if equals else following)
    return None


def switch(key: str, text: str) -> click.Option:
    """An option that says yes, with one that says no."""
    return click.Option([f"{flag(key)}/{flag(f'no_{key}')}"], default=None, help=text)


def option_of(key: str, info: FieldInfo, allowed: str) -> click.Option:
    """The option of a key of the core.

    Args:
        key: its name.
        info: its type, default and description.
        allowed: its range, as `ranges` says it.
    """
    default = info.get_default(call_default_factory=True)
    hints = [allowed] if allowed else []
    if info.is_required():
        hints.append("required without a run file" if key == "save" else "required")
    elif default is not False and default not in (None, {}, []):
        hints.append(f"default: {default}")
    many = "list[" in str(info.annotation)
    if many:
        hints.append("several: repeat")
    text = f"{info.description}  [{'; '.join(hints)}]" if hints else str(info.description)
    if info.annotation is bool:
        return switch(key, text)
    if key == "eval_prompt_data":
        return click.Option([flag(key)], nargs=2, multiple=True, metavar="NAME PATH", help=text)
    return click.Option([flag(key)], multiple=many, metavar=metavar(info), help=text)


def ranges(model: type[BaseModel]) -> dict[str, str]:
    """What each key may be: "1 or more", "over 0, at most 1".

    Read off the types: the JSON Schemas of all models, which say the same, take a tenth of a second.
    """
    return {key: ", ".join(_bounds(info)) for key, info in model.model_fields.items()}


def _bounds(info: FieldInfo) -> Iterator[str]:
    """The bounds of a field, or of the one type beside None that it may have."""
    found = list(info.metadata)
    for part in get_args(info.annotation) if get_origin(info.annotation) in (Union, UnionType) else ():
        for each in getattr(part, "__metadata__", ()):
            found += each.metadata if isinstance(each, FieldInfo) else [each]
    for kind, words in (("ge", "{} or more"), ("gt", "over {}"), ("le", "at most {}"), ("lt", "below {}")):
        for bound in found:
            if (limit := getattr(bound, kind, None)) is not None and limit < _FAR:
                yield words.format(f"{limit:g}")


def metavar(info: FieldInfo) -> str:
    """What an option takes, by its type."""
    annotation = str(info.annotation)
    if words := _words(info.annotation):
        return "|".join(words)
    for kind, placeholder in (
        ("dict", "JSON"),
        ("JsonValue", "JSON"),
        ("Path", "PATH"),
        ("int", "INT"),
        ("float", "FLOAT"),
    ):
        if kind in annotation:
            return placeholder
    return "TEXT"


def _words(annotation: object) -> list[str]:
    """The words that a type, or the type of a list's items, allows; none where it allows any."""
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    return next(filter(None, map(_words, get_args(annotation))), [])
