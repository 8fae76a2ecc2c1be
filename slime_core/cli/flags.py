"""Builds click options: for a typed key, for plugins' flat keys, for plugin selection and for sampling.

Help stays fast: a plugin's settings are imported only when a user types one of its flags. `setup_of` and
`TextLimit` serve commands without a run.

Example:

    option_of("lr", OptimArgs.model_fields["lr"], allowed="over 0")    # --lr FLOAT  Peak learning rate. [over 0; …]
    flat_flags(FlatKeys(catalog), arguments)["trainer"].options        # --lora-rank INT, ...
"""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import UnionType
from typing import Literal, Union, cast, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slime_core.catalog import Catalog, Registered
from slime_core.config import (
    MAX_DEPTH,
    FlatKeys,
    Owner,
    refuse_unfit,
    shown,
)
from slime_core.errors import ConfigError, DataError, PluginError, did_you_mean
from slime_core.processes import Protection
from slime_core.roles import FinishReason, PrefixedTable, SamplingParams, Settings, Setup
from slime_core.sample import Json

# Flags: the option of a typed key, with its range and its default; and a value as it is typed.

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


# Flags of choices: settings that the installed specs declare as flat keys, grouped by role.

NAMES = "NAME|JSON"
"""What a flag of several names takes."""


@dataclass(slots=True)
class RoleFlags:
    """What one role's choices add to a command line."""

    options: list[click.Option] = field(default_factory=list)
    """Their flags."""
    notes: list[str] = field(default_factory=list)
    """Flags that are known by their beginning alone."""
    unknown: dict[str, str] = field(default_factory=dict)
    """What to say of typed flags that begin as those do, and which nobody knows; names without their dashes."""


def flat_flags(
    flat_keys: FlatKeys, arguments: Sequence[str], values: Mapping[str, Json] | None = None
) -> dict[str, RoleFlags]:
    """The flags of all offered choices, by role.

    Args:
        flat_keys: what is offered.
        arguments: what is typed: a flag that only its beginning makes known is added if it is among them.
        values: keys of the run file, for installed settings.
    """
    typed = {key_typed(argument) for argument in arguments if argument.startswith("--")}
    typed |= {key.removeprefix("no_") for key in typed if key.startswith("no_")}
    keys = dict(flat_keys.owners)
    found: dict[str, RoleFlags] = {}
    for prefix, several in flat_keys.prefixes.items():
        for registered in several:
            spec, role_flags = registered.spec, found.setdefault(registered.spec.role, RoleFlags())
            if tables := [table.key for table in spec.prefixed if table.prefix == prefix]:
                role_flags.notes.append(_every(prefix, tables[0], registered))
                keys |= {key: owners for key in typed if (owners := flat_keys.owners_of(key))}
                continue
            names = () if spec.is_late else tuple(f"{prefix}{name}" for name in spec.model.model_fields)
            if spec.is_late:
                role_flags.notes.append(
                    f"{flag(prefix)}KEY VALUE: every setting of {spec.role} {spec.name}, "
                    f"`slime plugins show {registered.plugin}`"
                )
            elif spec.installed is not None:
                role_flags.notes.append(_every(prefix, spec.installed.key, registered))
            keys |= {key: owners for key in (*names, *typed) if (owners := flat_keys.owners_of(key))}
    models = _Models(arguments, values or {})
    for key, owners in keys.items():
        role_flags = found.setdefault(owners[0].role, RoleFlags())
        if said := models.unknown(key, owners):
            role_flags.unknown[key.replace("_", "-")] = said
        else:
            role_flags.options.append(_option(key, owners, models, is_typed=key in typed))
    return found


def _every(prefix: str, table: str, registered: Registered) -> str:
    spec = registered.spec
    told = f"every {table} setting of {spec.role} {spec.name}, `slime plugins show {registered.plugin}`"
    return f"{flag(prefix)}KEY VALUE: {told}"


class _Models:
    """Settings models of choices, and of what they pass on, which depends on what else is given."""

    def __init__(self, arguments: Sequence[str], values: Mapping[str, Json]) -> None:
        self._arguments, self._values = arguments, values
        self._made_of: dict[tuple[str, str], type[Settings] | None] = {}

    def of(self, owner: Owner, *, is_typed: bool) -> type[Settings] | None:
        """That which has a setting, if it is there or its flag was typed; what fails is refused where it is chosen."""
        registered = owner.registered
        if registered.spec.is_late and not is_typed:
            return None
        if not owner.table:
            with contextlib.suppress(PluginError):
                return registered.spec.model
            return None
        place = registered.qualified, owner.table
        if place not in self._made_of:
            prefixed = [table for table in registered.spec.prefixed if table.key == owner.table]
            self._made_of[place] = self._in_table(owner, prefixed[0]) if prefixed else self._made(owner)
        return self._made_of[place]

    def unknown(self, key: str, owners: Sequence[Owner]) -> str:
        """What is wrong with a flag that begins with a choice's prefix; empty where it is good, or nobody can tell."""
        names, shown = list[str](), ""
        for owner in owners:
            model = self.of(owner, is_typed=True) if owner.table else None
            if model is None or owner.setting in model.model_fields:
                return ""
            spec = owner.registered.spec
            own = [table.prefix for table in spec.prefixed if table.key == owner.table]
            several = model.model_fields if own else (*spec.model.model_fields, *model.model_fields)
            names += [flag((own[0] if own else spec.flat_prefix) + name) for name in several]
            shown = f"{spec.role}/{spec.name}"
        return f"{did_you_mean(flag(key), names)} `slime plugins show {shown}` lists all {len(names)}."

    def _made(self, owner: Owner) -> type[Settings] | None:
        spec = owner.registered.spec
        assert spec.installed is not None, "the owner of an installed setting"
        given = dict(self._section(owner)) | self._flat(spec.flat_prefix, spec.model.model_fields)
        with contextlib.suppress(PluginError, ConfigError):
            return spec.installed.model(given)
        return None

    def _in_table(self, owner: Owner, prefixed: PrefixedTable) -> type[Settings] | None:
        table = self._section(owner).get(prefixed.key)
        typed = [key_typed(each) for each in self._arguments if each.startswith("--")]
        names = [
            key.removeprefix(prefixed.prefix) for key in (*self._values, *typed) if key.startswith(prefixed.prefix)
        ]
        given = (dict(table) if isinstance(table, dict) else {}) | self._flat(prefixed.prefix, names)
        with contextlib.suppress(PluginError, ConfigError):
            return prefixed.model(given)
        return None

    def _section(self, owner: Owner) -> Mapping[str, Json]:
        """What the run file says in the table of the choice."""
        table = self._values.get(owner.role)
        section = table.get(owner.name) if isinstance(table, dict) else None
        return section if isinstance(section, dict) else {}

    def _flat(self, prefix: str, names: Iterable[str]) -> dict[str, Json]:
        """What the run file, or else the command line, says of some names behind a prefix."""
        found: dict[str, Json] = {}
        for name in names:
            for value in (self._values.get(prefix + name), typed_value(self._arguments, flag(prefix + name))):
                if value is not None:
                    found[name] = value
        return found


def key_typed(argument: str) -> str:
    """The key that an argument is the flag of."""
    return argument.removeprefix("--").partition("=")[0].replace("-", "_")


def _option(key: str, owners: Sequence[Owner], models: _Models, *, is_typed: bool) -> click.Option:
    """One flag, of all choices that have it."""
    infos = {}
    for owner in owners:
        model = models.of(owner, is_typed=is_typed)
        if model is not None and owner.setting in model.model_fields:
            allowed = "" if owner.table else _range(model, owner.setting)  # hundreds, of which each costs
            infos[owner] = (model.model_fields[owner.setting], allowed)
    role = owners[0].role.replace("_", " ")
    of = f"({role} {', '.join(dict.fromkeys(owner.registered.spec.name for owner in owners))})"
    if not infos:  # made late
        return click.Option([flag(key)], metavar="VALUE", help=of)
    first, _ = next(iter(infos.values()))
    hints = [*_same(allowed for _, allowed in infos.values()), *_same(_default(info) for info, _ in infos.values())]
    many = "list[" in str(first.annotation)
    if many:
        hints.append("several: repeat, or a JSON list")
    said = f"  [{'; '.join(hints)}]" if hints else ""
    text = f"{first.description or ''} {of}{said}".strip()
    if first.annotation is bool:
        return switch(key, text)
    return click.Option([flag(key)], multiple=many, metavar=NAMES if many else metavar(first), help=text)


def _range(model: type[Settings], setting: str) -> str:
    try:
        return ranges(model).get(setting, "")
    except Exception:  # a plugin's type without a schema costs its range in the help, nothing else
        return ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    default = info.default
    return "" if default is False or default in (None, {}, []) else f"default: {default}"


def _same(texts: Iterable[str]) -> list[str]:
    """The text that all of them have, if it is the same one; else nothing."""
    several = set(texts)
    return [text for text in several if text] if len(several) == 1 else []


# `--temperature`, `--stop` and the like, for a command that samples without a run: the settings of `SamplingParams`.

_OPTIONS = (
    click.option("--max-new-tokens", type=int, default=256, show_default=True, help="Token budget of a response."),
    click.option("--temperature", type=float, default=1.0, show_default=True, help="0 is greedy."),
    click.option("--top-p", type=float, default=1.0, help="Nucleus mass."),
    click.option("--top-k", type=int, default=-1, help="Candidates kept."),
    click.option("--min-p", type=float, default=0.0, help="Least share of the likeliest one's probability."),
    click.option("--min-new-tokens", type=int, default=0, help="Tokens before which no stop token is drawn."),
    click.option("--stop", multiple=True, help="Text that ends a response; repeatable."),
    click.option("--stop-token-ids", type=int, multiple=True, help="Id that ends a response; repeatable."),
    click.option("--ignore-eos", is_flag=True, help="Let no token end a response."),
    click.option("--repetition-penalty", type=float, default=1.0, help="Divides the logits of tokens made so far."),
    click.option("--presence-penalty", type=float, default=0.0, help="Taken off the logits of tokens made so far."),
    click.option("--frequency-penalty", type=float, default=0.0, help="The same, as often as each was made."),
    click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Added to the logit of an id; repeatable."),
    click.option("--no-stop-trim", is_flag=True, help="Show the stop text that ended a response, too."),
    click.option("--skip-special-tokens/--no-skip-special-tokens", default=True, help="Leave special tokens out."),
)


def sampling_options(command: click.decorators.FC) -> click.decorators.FC:
    """Give a command the options; it is called with their values by keyword."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def parse_sampling(given: Mapping[str, object]) -> SamplingParams:
    """The settings from the values of all options.

    Raises:
        click.UsageError: a setting is out of its range, or a bias is not written ID=BIAS.
    """
    biases: dict[int, float] = {}
    for each in cast(tuple[str, ...], given["logit_bias"]):
        token, _, bias = each.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise click.UsageError(f"--logit-bias {each}: expected ID=BIAS, as in 13=-2.5") from None
    ids = frozenset(cast(tuple[int, ...], given["stop_token_ids"]))
    try:
        return SamplingParams(**{**given, "stop_token_ids": ids, "logit_bias": biases})  # type: ignore[arg-type]  # click has parsed each by its type
    except ValueError as error:
        raise click.UsageError(str(error)) from None


# TextLimit: what the model's longest text leaves of a budget, said before it costs a response, and where it cut one.


class TextLimit:
    """The longest text that a model takes, and which responses to a list of prompts it cut short."""

    def __init__(self, prompts: Sequence[Sequence[int]], budget: int, positions: int | None) -> None:
        """Measure the prompts.

        Args:
            prompts: token ids of each.
            budget: `max_new_tokens` of a response.
            positions: tokens of the model's longest text, prompt included; None if nobody knows.

        Raises:
            DataError: a prompt leaves no token for a response.
        """
        self._lengths = [len(prompt) for prompt in prompts]
        self._budget, self._positions = budget, positions
        self._cut, self._first = 0, ""
        if positions is None:
            return
        long = [number for number, length in enumerate(self._lengths) if length >= positions]
        if long:
            others = f" (and {len(long) - 1} more are as long)" if long[1:] else ""
            raise DataError(
                f"prompt {long[0]} has {self._lengths[long[0]]} tokens{others}, and the model has {positions} "
                "positions, prompt and response together: none is left for a response. Shorten it, or leave it out; "
                "the first prompt is number 0"
            )

    def note(self, prompt: int, sample: int, made: int, finish: FinishReason) -> None:
        """Count a response if it ended for want of room and not of budget."""
        if finish is not FinishReason.LENGTH or made >= self._budget:
            return
        self._cut += 1
        if not self._first:
            self._first = (
                f"prompt {prompt} sample {sample} has {made} of {self._budget} tokens after "
                f"{self._lengths[prompt]} of the prompt"
            )

    def said(self) -> str:
        """What was cut, as a sentence; empty if nothing was."""
        if not self._cut:
            return ""
        limit = "the engine's longest text" if self._positions is None else f"the model's {self._positions} positions"
        which = "1 response" if self._cut == 1 else f"{self._cut} responses, the first"
        return f"cut short by {limit}: {which}: {self._first}"


# A setup for commands that build a choice without a run.

SEED = 1234
"""The seed of a run that is given none."""


def setup_of(catalog: Catalog, protection: Protection, seed: int = SEED) -> Setup:
    """What factories are given; `make` builds other choices of the same catalog, and isolates rewards."""

    def make(role: str, name: str, **settings: object) -> object:
        found = catalog.find(role, name)
        validated = found.spec.model.model_validate(settings)
        return protection.protect(found, validated, partial(found.spec.factory, validated, setup), name=name)

    setup = Setup(make, seed)
    return setup
