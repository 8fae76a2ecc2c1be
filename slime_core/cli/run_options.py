"""Flags of a run, generated from the typed families: every key is a flag, every role a selection.

Example:

    slime train run.toml --lr 1e-5 --reward math=0.8 --reward format=0.2 --engine.local.workers 4
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import click
from pydantic.fields import FieldInfo

from slime_core.cli.switches import plain_switches
from slime_core.config import (
    ALIASES,
    DEFAULT_USE,
    FAMILIES,
    WEIGHTED,
    Family,
    called_here,
    merge,
    parse_use,
    places_of,
    read_run_file,
)
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, SPECS
from slime_core.sample import Json

SWITCH, NAMES = "true|false", "NAME|JSON"
"""What slime's names for settings take that is not one value."""
_ALIAS_HELP = {
    "advantage_estimator": ("NAME", "The same as --advantage; gspo and cispo are --advantage grpo with that loss."),
    "loss_type": ("NAME", "The same as --loss."),
    "eps_clip": ("FLOAT", "How far the ratio may fall below 1."),
    "eps_clip_high": ("FLOAT", "How far it may rise above 1."),
    "eps_clip_c": ("FLOAT", "Dual clip constant."),
    "entropy_coef": ("FLOAT", "Weight of the entropy bonus."),
    "use_opsm": (SWITCH, "Mask samples of negative advantage that drifted from their sampler."),
    "opsm_delta": ("FLOAT", "How far they may drift, nats a token."),
    "grpo_std_normalization": (SWITCH, "Divide advantages by the group's standard deviation."),
    "rewards_normalization": (SWITCH, "Subtract the group's mean reward."),
    "normalize_advantages": (SWITCH, "Whiten advantages over all trained tokens of the step."),
    "gamma": ("FLOAT", "Discount of the reward (--advantage reinforce_plus_plus, ppo)."),
    "lambd": ("FLOAT", "How far errors of the critic reach, 0 to 1 (--advantage ppo)."),
    "lora_rank": ("INT", "Rank of the updates that are trained instead of the weights (--trainer local)."),
    "lora_alpha": ("FLOAT", "They count lora_alpha / lora_rank times."),
    "lora_target_modules": (NAMES, "Layers that are updated, as q_proj; all-linear: all but the head."),
    "only_train_params_name_list": (NAMES, "Train only weights with such names, as layers.1[0-9]."),
    "freeze_params_name_list": (NAMES, "Do not train weights with such names, as embed_tokens."),
    "gradient_checkpointing": (SWITCH, "Compute layers again in the backward pass: less memory, more time."),
    "tis_clip": ("FLOAT", "Largest importance weight of a token (--correction tis, icepop)."),
    "tis_clip_low": ("FLOAT", "Smallest importance weight of a token (--correction tis, icepop)."),
}


class RunCommand(click.Command):
    """A command that takes every key of a run; its help is grouped by family."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Add the flags."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.sections: dict[str, list[click.Option]] = {}
        for family in FAMILIES.values():
            title = (family.__doc__ or "").strip(" .")
            ranges = _ranges(family)
            fields = family.model_fields.items()
            self.sections[title] = [_option(key, info, ranges[key]) for key, info in fields]
        self.sections["Choices (`slime plugins list` shows what there is)"] = [
            _role_option(role) for role in SELECTABLE
        ]
        self.sections["slime's names for settings of these choices"] = [
            _alias_option(key, *_ALIAS_HELP[key]) for key in ALIASES
        ]
        self.params += [option for options in self.sections.values() for option in options]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out settings of plugins, `--role.name.key value`, which click cannot know."""
        rest, ctx.obj = split_settings(args)
        try:
            return super().parse_args(ctx, plain_switches(rest, self._switches()))
        except click.NoSuchOption as error:
            name = called_here(error.option_name.removeprefix("--"))
            if name is None:
                raise
            # click drops possibilities that are not spelt alike
            raise click.UsageError(f"{error.message} Did you mean {_flag(name)!r}?", ctx) from None

    def _switches(self) -> dict[str, str]:
        """The flag that says no to each that says yes."""
        options = (option for options in self.sections.values() for option in options)
        return {option.opts[0]: option.secondary_opts[0] for option in options if option.secondary_opts}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options by family."""
        grouped = {id(option) for options in self.sections.values() for option in options}
        own = [param for param in self.get_params(ctx) if isinstance(param, click.Option) and id(param) not in grouped]
        for title, options in {"Options": own, **self.sections}.items():
            with formatter.section(title):
                formatter.write_dl([_help_record(option, ctx) for option in options], col_max=36)
        with formatter.section("Settings of plugins"):
            formatter.write_text("--ROLE.NAME.KEY VALUE, as in --engine.local.workers 4; `slime plan` shows them all.")


def _help_record(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    names, text = option.get_help_record(ctx) or ("", "")
    return (f"--[no-]{option.opts[0].removeprefix('--')}" if option.secondary_opts else names), text


def collect_values(run_file: Path | None, flags: Mapping[str, object], settings: Mapping[str, Json]) -> dict[str, Json]:
    """The run file with the command line on top; a flag wins over every spelling of its key in the file."""
    base = read_run_file(run_file) if run_file else {}
    over: dict[str, Json] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        if key in SELECTABLE:
            over[key] = {"use": _parse_uses(key, value)}
        else:
            over[key] = _plain(key, value)
    over = merge(over, settings)
    for name, alias in ALIASES.items():
        if name in over:
            for path in places_of(name, over[name]):
                base = _without(base, path)
        elif any(_has(over, path) for path in alias.paths):
            base.pop(name, None)
    return merge(base, over)


def _has(values: Mapping[str, Json], path: tuple[str, ...]) -> bool:
    inner = values.get(path[0])
    return path[0] in values if len(path) == 1 else isinstance(inner, dict) and _has(inner, path[1:])


def _without(values: Mapping[str, Json], path: tuple[str, ...]) -> dict[str, Json]:
    inner = values.get(path[0])
    if len(path) > 1 and isinstance(inner, dict):
        return {**values, path[0]: _without(inner, path[1:])}
    return {key: value for key, value in values.items() if len(path) > 1 or key != path[0]}


def refuse_unused(unused: Sequence[str], settings: Mapping[str, Json]) -> None:
    """Refuse settings on the command line of what the run does not use.

    Args:
        unused: `role.name` of each section that nothing selected.
        settings: what `split_settings` found.

    Raises:
        ConfigError: naming each, and how to choose it.
    """
    given = [f"{role}.{name}" for role, names in settings.items() if isinstance(names, dict) for name in names]
    problems = [
        f"--{each}.* has no effect here: nothing chooses {each.partition('.')[2]!r}, "
        f"pass --{each.partition('.')[0].replace('_', '-')} {each.partition('.')[2]}"
        for each in given
        if each in unused
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def split_settings(arguments: list[str]) -> tuple[list[str], dict[str, Json]]:
    """Separate `--role.name.key value` from everything else; without a value it is a switch, and true.

    Raises:
        ConfigError: a setting of a role that does not exist.
    """
    rest: list[str] = []
    settings: dict[str, Json] = {}
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        flag, equals, value = argument.partition("=")
        if not flag.startswith("--") or "." not in flag:
            rest.append(argument)
            continue
        role, _, inner = flag.removeprefix("--").partition(".")
        name, _, key = inner.rpartition(".")  # a name may hold dots and dashes, ./my.py:fn
        role, key = role.replace("-", "_"), key.replace("-", "_")
        if not name or not key or role not in SELECTABLE:
            raise ConfigError(f"{flag}: settings are written --ROLE.NAME.KEY VALUE; roles are {', '.join(SELECTABLE)}")
        bare = not equals and (not remaining or remaining[0].startswith("--"))
        given = value if equals else "true" if bare else remaining.popleft()
        settings = merge(settings, {role: {name: {key: literal(given)}}})
    return rest, settings


def is_setting(key: str) -> bool:
    """Whether a flag of `slime train` sets this: a key, one of slime's names, a role or a setting of a choice."""
    known = {*ALIASES, *SELECTABLE, *(field for family in FAMILIES.values() for field in family.model_fields)}
    return key.partition(".")[0] in known


def literal(text: str) -> Json:
    """A value as it is typed: JSON, True or False as Python writes them, or else text."""
    try:
        value: Json = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
    return value


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _ranges(family: type[Family]) -> dict[str, str]:
    """What each key may be, as its JSON Schema says: "1 or more", "over 0, at most 1"."""
    words = {
        "minimum": "{} or more",
        "exclusiveMinimum": "over {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
    }
    ranges = {}
    for key, schema in family.model_json_schema()["properties"].items():
        bounded = next((part for part in schema.get("anyOf", ()) if part.get("type") != "null"), schema)
        ranges[key] = ", ".join(text.format(f"{bounded[word]:g}") for word, text in words.items() if word in bounded)
    return ranges


def _option(key: str, info: FieldInfo, allowed: str) -> click.Option:
    flag, default = _flag(key), info.get_default(call_default_factory=True)
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
        return _switch(key, text)
    if key == "eval_prompt_data":
        return click.Option([flag], nargs=2, multiple=True, metavar="NAME PATH", help=text)
    return click.Option([flag], multiple=many, metavar=_metavar(info), help=text)


def _alias_option(key: str, metavar: str, text: str) -> click.Option:
    if metavar == SWITCH:
        return _switch(key, text)
    if metavar == NAMES:
        text += "  [several: repeat, or a JSON list]"
    return click.Option([_flag(key)], multiple=metavar == NAMES, metavar=metavar, help=text)


def _switch(key: str, text: str) -> click.Option:
    return click.Option([f"{_flag(key)}/{_flag(f'no_{key}')}"], default=None, help=text)


def _metavar(info: FieldInfo) -> str:
    annotation = str(info.annotation)
    for kind, shown in (
        ("dict", "JSON"),
        ("Literal", ""),
        ("Path", "PATH"),
        ("int", "INT"),
        ("float", "FLOAT"),
    ):
        if kind in annotation:
            return shown or "|".join(map(str, get_args(info.annotation)))
    return "TEXT"


def _role_option(role: str) -> click.Option:
    default = ", ".join(DEFAULT_USE[role])
    hint = "required, or --group-reward" if role == "reward" else f"default: {default}" if default else ""
    several = "; several: repeat" if SPECS[role].many else ""
    text = f"Which {role.replace('_', ' ')}{several}."
    metavar = "NAME[=WEIGHT]" if role in WEIGHTED else "NAME"
    return click.Option([_flag(role)], multiple=True, metavar=metavar, help=f"{text}  [{hint}]" if hint else text)


def _parse_uses(role: str, value: object) -> Json:
    use: dict[str, Json] = {}
    for text in value if isinstance(value, tuple) else (value,):
        before, equals, after = str(text).rpartition("=")
        name = before if equals else after
        if name in use:
            raise ConfigError(f"--{role} names {name!r} twice")
        try:
            use[name] = float(after) if equals else 1.0
        except ValueError:
            raise ConfigError(f"--{role} {text}: the weight after '=' must be a number") from None
    return dict(parse_use(role, use))


def _plain(key: str, value: object) -> Json:
    if key == "eval_prompt_data" and isinstance(value, tuple):
        return {str(name): str(path) for name, path in value}
    if key in ("apply_chat_template_kwargs", "multimodal_keys"):
        return literal(str(value))
    if isinstance(value, tuple):
        return _names(value) if key in ALIASES else [str(each) for each in value]
    if isinstance(value, bool):
        return value
    return literal(str(value)) if key in ALIASES else str(value)


def _names(given: Sequence[object]) -> Json:
    """What a flag of names says: one name, a JSON list, or the flag once for each of several."""
    read = [literal(str(each)) for each in given]
    if len(read) == 1:
        return read[0]
    return [name for each in read for name in (each if isinstance(each, list) else [each])]
