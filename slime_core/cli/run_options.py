"""The flags of `slime train` and similar commands: every key of a run and every role is one, and so are plugins' keys.

Flags are read without their types: the composed model of the run validates them with the keys of the run file. A flag
for true or false accepts `--bf16`, `--no-bf16`, `--bf16 false` and `--bf16=False`.

Example:

    slime train run.toml --lr 1e-5 --reward math=0.8 --reward format=0.2 --lora-rank 8 --engine.local.workers 4
"""

import contextlib
import itertools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import click

from slime_core.catalog import Catalog, allowed_by_environment
from slime_core.cli.plugins import with_plugin_options
from slime_core.cli.run_help import flag, show_help
from slime_core.config import (
    FAMILIES,
    FAMILY_OF_KEY,
    MAX_DEPTH,
    ROLE_OF_ALIAS,
    FlatKeys,
    Plan,
    RunConfig,
    add_plugins,
    hint_for,
    merge,
    missing_plugins,
    parse_config,
    parse_plugins,
    parse_use,
    read_run_file,
    refuse_unfit,
    resolve,
    short_repr,
)
from slime_core.errors import CheckpointError, ConfigError, PluginError, UnknownName
from slime_core.roles import SELECTABLE, PluginSet
from slime_core.sample import Json

_JSON_KEYS = ("apply_chat_template_kwargs", "multimodal_keys", "served_models")
_SETTINGS = "settings are written --ROLE.NAME.KEY VALUE"


# Flags to keys and values.


def literal(text: str) -> Json:
    """A value as it is typed: JSON, True or False as Python writes them, or else text."""
    try:
        value: Json = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
    except RecursionError:
        raise ConfigError(
            f"{short_repr(text)} is nested over {MAX_DEPTH} deep, which no key takes: flatten it"
        ) from None
    refuse_unfit(value, short_repr(text))
    return value


def split_settings(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, Json]]]:
    """Separate `--role.name.key value` from everything else; without a value it is a switch, and true."""
    rest: list[str] = []
    settings: list[tuple[str, Json]] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        name, equals, value = argument.partition("=")
        if not name.startswith("--") or "." not in name:
            rest.append(argument)
            continue
        if name.count(".") > MAX_DEPTH:
            raise ConfigError(f"{name[:40]}...: has over {MAX_DEPTH} parts; {_SETTINGS}")
        role, _, inner = name.removeprefix("--").partition(".")
        if not all(inner.rpartition(".")) or role.replace("-", "_") not in SELECTABLE:
            raise ConfigError(f"{name}: {_SETTINGS}; roles are {', '.join(SELECTABLE)}")
        given = value if equals else "true" if _is_bare(remaining) else remaining.popleft()
        settings.append((name.removeprefix("--"), literal(given)))
    return rest, settings


def in_tables(settings: Sequence[tuple[str, Json]], catalog: Catalog) -> dict[str, Json]:
    """The tables of roles that settings of `split_settings` stand for.

    Only the catalog knows where a dotted choice name ends and its setting begins: `engine.sglang.server.log_level` or
    `reward.my_module.score.top`.
    """
    tables: dict[str, Json] = {}
    for written, value in settings:
        before, _, inner = written.partition(".")
        role = before.replace("-", "_")
        known = {name for qualified in catalog.choices(role) for name in (qualified, qualified.rpartition("/")[2])}
        # A choice may hold dots and dashes, ./my.py:fn
        name = next((each for each in known if inner.startswith(f"{each}.")), inner.rpartition(".")[0])
        keys = inner.removeprefix(f"{name}.").replace("-", "_").split(".")
        section = reduce(lambda below, key: {key: below}, reversed(keys), value)
        tables = merge(tables, {role: {name: section}})
    return tables


def _is_bare(remaining: Sequence[str]) -> bool:
    return not remaining or remaining[0].startswith("--")


class _Flags:
    """Takes the flags of a run out of a command line."""

    def __init__(self, catalog: Catalog, own: set[str]) -> None:
        self._own = own  # the command's other options, for click
        self._flat = FlatKeys(catalog)
        self.rest: list[str] = []
        self._given: dict[str, list[str | bool]] = {}

    def read(self, arguments: Sequence[str]) -> dict[str, Json]:
        """The values of flags by key; the other arguments are in `rest`."""
        remaining = deque(arguments)
        while remaining:
            argument = remaining.popleft()
            name = argument.partition("=")[0]
            key = name.removeprefix("--").replace("-", "_")
            positive = key.removeprefix("no_")
            if not name.startswith("--") or name in self._own:
                self.rest.append(argument)
            elif self._is_key(key):
                self._given.setdefault(key, []).extend(self._typed(argument, key, remaining))
            elif key != positive and name == argument and self._may_be_off(positive):
                self._given.setdefault(positive, []).append(False)
            else:
                self.rest.append(argument)
        return {key: self._value(key, several) for key, several in self._given.items()}

    def _typed(self, argument: str, key: str, remaining: deque[str]) -> list[str | bool]:
        name, equals, value = argument.partition("=")
        if self._is_switch(key):
            follows = bool(remaining) and remaining[0].lower() in ("true", "false")
            text = value if equals else remaining.popleft() if follows else "true"
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{argument}: it is true or false, write {name} or {flag(f'no_{key}')}")
            return [text.lower() == "true"]
        if not equals and _is_bare(remaining) and self._flat.owners_of(key):
            return [True]
        count, given = 2 if key == "eval_prompt_data" else 1, [value] if equals else []
        while len(given) < count:
            if not remaining:
                needs = "an argument" if count == 1 else f"{count} arguments"
                raise click.UsageError(f"Option '{name}' requires {needs}.")
            given.append(remaining.popleft())
        return [*given]

    def _is_key(self, key: str) -> bool:
        ours = key in FAMILY_OF_KEY or key in SELECTABLE or key in ROLE_OF_ALIAS
        return ours or bool(self._flat.owners_of(key) or self._flat.foreign(key))

    def _is_switch(self, key: str) -> bool:
        foreign = self._flat.foreign(key)
        return foreign.is_switch if foreign else self._annotation(key) is bool

    def _may_be_off(self, key: str) -> bool:
        return self._is_switch(key) or bool(self._flat.owners_of(key))

    def _annotation(self, key: str) -> object:
        if key in FAMILY_OF_KEY:
            return FAMILIES[FAMILY_OF_KEY[key]].model_fields[key].annotation
        for owner in self._flat.owners_of(key):
            with contextlib.suppress(PluginError):
                fields = {} if owner.place[1:] else owner.registered.spec.model.model_fields
                return fields[owner.place[0]].annotation if owner.place[0] in fields else None
        return None

    def _value(self, key: str, given: Sequence[str | bool]) -> Json:
        if key in SELECTABLE:
            return {"use": _parse_uses(key, given)}
        if key == "eval_prompt_data":
            return {str(name): str(path) for name, path in zip(given[::2], given[1::2], strict=True)}
        annotation = self._annotation(key)
        many = "list[" in str(annotation)
        if key in FAMILY_OF_KEY and key not in _JSON_KEYS:
            return list(given) if many else given[-1]
        values = [literal(each) if isinstance(each, str) else each for each in given]
        is_one = (
            key in ROLE_OF_ALIAS or key in _JSON_KEYS or self._flat.foreign(key) or not (many or annotation is None)
        )
        if is_one or len(values) == 1 or isinstance(values[-1], bool):
            return values[-1]
        return [name for each in values for name in (each if isinstance(each, list) else [each])]


def _parse_uses(role: str, given: Sequence[str | bool]) -> Json:
    use: dict[str, Json] = {}
    for text in map(str, given):
        before, equals, after = text.rpartition("=")
        name = before if equals else after
        if name in use:
            raise ConfigError(f"--{role} names {name!r} twice")
        try:
            use[name] = float(after) if equals else 1.0
        except ValueError:
            raise ConfigError(f"--{role} {text}: the weight after '=' must be a number") from None
    return dict(parse_use(role, use))


# RunInput: the run file, read once, the flags, and the plugins that both ask for.


@dataclass(frozen=True, slots=True)
class RunInput:
    """What a command line gives."""

    path: Path | None
    """The run file, if there is one."""
    file: Mapping[str, Json]
    """Its keys, with what the command line and SLIME_PLUGINS say about plugins."""
    flags: Mapping[str, Json]
    """The keys of the command line."""
    catalog: Catalog
    """What is offered."""


def run_input(ctx: click.Context, path: Path | None) -> RunInput:
    """What the command line gives with this run file; reuses the early read if the path matches."""
    early: RunInput = ctx.obj
    if path == early.path:
        return early
    file = with_plugin_options(ctx, read_run_file(path) if path else {})
    catalog = Catalog.discover(parse_plugins(file.get("plugins", {})))
    return RunInput(path, file, early.flags, catalog)


class RunCommand(click.Command):
    """A command that takes every key of a run as a flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out the flags of a run; click parses the rest. `--help TOPIC` explains some of them."""
        named = [each for each in args if each in ("-h", "--help")]
        topic = args[args.index(named[0]) + 1 :][:1] if named else []
        rest, settings = split_settings(args)
        path, file, plugins = _early_file(rest)
        if named:
            wanted = topic[0] if topic and not topic[0].startswith("-") and topic != [str(path)] else ""
            show_help(self, ctx, wanted, partial(Catalog.discover, plugins))
            ctx.exit()
        catalog = Catalog.discover(plugins)
        flags = _Flags(catalog, {name for param in self.params for name in (*param.opts, *param.secondary_opts)})
        over = merge(flags.read(rest), in_tables(settings, catalog))
        refuse_unfit(over, "the command line")
        ctx.obj = RunInput(path, file, over, catalog)
        try:
            return super().parse_args(ctx, flags.rest)
        except click.NoSuchOption as error:
            typed = error.option_name
            pairs = itertools.pairwise((*rest, ""))
            given = next((each.partition("=")[2] or after for each, after in pairs if each.split("=")[0] == typed), "")
            hint = hint_for(typed.removeprefix("--"), literal(given), catalog, flag, error.possibilities or ())
            raise click.UsageError(f"No such option '{typed}'.{hint}", error.ctx) from None


def _early_file(arguments: Sequence[str]) -> tuple[Path | None, dict[str, Json], PluginSet]:
    named: dict[str, list[str]] = {"--plugin": [], "--no-plugin": []}
    path: Path | None = None
    for argument, following in itertools.pairwise((*arguments, "")):
        name, equals, value = argument.partition("=")
        if name in named:
            named[name].append(value if equals else following)
        elif path is None:
            with contextlib.suppress(OSError):  # longer than any path: the value of a flag
                file = Path(argument) / "run.toml" if Path(argument).is_dir() else Path(argument)
                path = file if file.suffix == ".toml" and file.is_file() else None
    with contextlib.suppress(ConfigError):  # refused when the command reads it
        values = read_run_file(path) if path else {}
        values = add_plugins(values, named["--plugin"], named["--no-plugin"], allowed_by_environment())
        return path, values, parse_plugins(values.get("plugins", {}))
    return Path(), {}, PluginSet()  # matches no path, so `run_input` reads again and raises


# From a command line to a plan.


def plan_run(ctx: click.Context, run_file: Path | None) -> Plan:
    """Resolve a run file and flags."""
    return plan_config(ctx, parse_run(ctx, run_file), run_input(ctx, run_file).catalog)


def parse_run(ctx: click.Context, run_file: Path | None, defaults: Mapping[str, Json] | None = None) -> RunConfig:
    """The configuration of a run file and flags; a command may set other defaults."""
    given = run_input(ctx, run_file)
    folder: dict[str, Json] = {"save": f"runs/{run_file.stem}"} if run_file else {}
    return parse_config({**folder, **(defaults or {}), **given.file}, given.catalog, given.flags)


def plan_config(ctx: click.Context, config: RunConfig, catalog: Catalog) -> Plan:
    """Resolve a configuration of `parse_run`. UnknownName lists missing plugins that the run folder was made with."""
    try:
        plan = resolve(config, catalog)
    except UnknownName as error:
        if not (missing := missing_plugins(_newest_lock(config.run.save / "checkpoints"), catalog)):
            raise
        listed = "\n  ".join(missing)
        raise UnknownName(f"{error}\nThe run in {config.run.save} was made with\n  {listed}") from None
    flags: Mapping[str, Json] = ctx.obj.flags
    tables = ((role, names) for role, names in flags.items() if role in SELECTABLE and isinstance(names, dict))
    if problems := [
        f"--{role}.{name}.* has no effect here: nothing chooses {name!r}, pass {flag(role)} {name}"
        for role, names in tables
        for name in names
        if f"{role}.{name}" in plan.unused
    ]:
        raise ConfigError("\n".join(problems))
    return plan


def _newest_lock(checkpoints: Path) -> Mapping[str, Json]:
    from slime_core.run import Checkpoint, list_checkpoints

    for path in reversed(list_checkpoints(checkpoints)):
        with contextlib.suppress(CheckpointError):
            return Checkpoint(path, 0).state().plugins
    return {}
