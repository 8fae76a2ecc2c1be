"""The flags of `slime train` and similar commands: one for every key of a run and one for every role.

Flags come from the typed keys of the core and from the installed plugins. A flag for true or false accepts
`--bf16`, `--no-bf16`, `--bf16 false` and `--bf16=False`.

Example:

    slime train run.toml --lr 1e-5 --reward math=0.8 --reward format=0.2 --lora-rank 8 --engine.local.workers 4
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from slime_core.catalog import Catalog
from slime_core.cli.flags import RoleFlags, flag, flat_flags, key_typed, literal, option_of, ranges, typed_value
from slime_core.cli.plugins import early_plugins, early_values
from slime_core.config import (
    CHOOSES,
    DEFAULT_USE,
    FAMILIES,
    FAMILY_OF_KEY,
    MAX_DEPTH,
    WEIGHTED,
    FlatKeys,
    TakenNames,
    elsewhere,
    hint_for,
    merge,
    parse_use,
    read_run_file,
    refuse_unfit,
    spellings,
)
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, SPECS, PluginSet
from slime_core.sample import Json

# Switches: flags of settings that are true or false, in every way that people type them.


def plain_switches(arguments: Iterable[str], switches: Mapping[str, str]) -> list[str]:
    """The arguments with every switch as one flag of its own.

    Args:
        arguments: as they are typed.
        switches: the flag that says no, by the one that says yes.

    Raises:
        ConfigError: a switch is given what is neither true nor false.
    """
    plain: list[str] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        flag, equals, value = argument.partition("=")
        if flag not in switches:
            plain.append(argument)
            continue
        if not equals:  # what follows is its value only if it can be no other thing, such as the run file
            value = remaining.popleft() if remaining and remaining[0].lower() in ("true", "false") else "true"
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{argument}: it is true or false, write {flag} or {switches[flag]}")
        plain.append(flag if value.lower() == "true" else switches[flag])
    return plain


# Flags of a run, generated from the typed families: every key is a flag, every role a selection.

_CATALOG, _FLAGS, _TAKEN = "slime_core.run.catalog", "slime_core.run.flags", "slime_core.run.taken"


class RunCommand(click.Command):
    """A command that takes every key of a run; its help is grouped by family."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Add the flags of the core; those of choices are added when it is known what is installed."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed on
        self.sections: dict[str, list[click.Option]] = {}
        for family in FAMILIES.values():
            title = (family.__doc__ or "").strip(" .")
            allowed = ranges(family)
            self.sections[title] = [option_of(key, info, allowed[key]) for key, info in family.model_fields.items()]
        self.sections["Choices (`slime plugins list` shows what there is)"] = [
            *(_role_option(role) for role in SELECTABLE),
            *(_choosing_option(name, role) for name, role in CHOOSES.items()),
        ]
        self.params += [option for options in self.sections.values() for option in options]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out settings of plugins, `--role.name.key value`; then parse with the flags of what is installed."""
        rest, settings = split_settings(args)
        values = early_values(rest)
        plugins = early_plugins(rest, values)
        catalog = Catalog.discover(plugins)
        ctx.obj = in_tables(settings, catalog)
        flags = flat_flags(FlatKeys(catalog), rest, merge(values, ctx.obj))
        taken = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        for of_role in flags.values():
            of_role.options = [option for option in of_role.options if not taken & {*option.opts}]
        ctx.meta[_CATALOG], ctx.meta[_FLAGS] = (plugins, catalog), flags
        ctx.meta[_TAKEN] = list(_taken_options(catalog, rest, taken))
        try:
            return super().parse_args(ctx, plain_switches(rest, self._switches(ctx)))
        except click.NoSuchOption as error:
            key = error.option_name.removeprefix("--")
            unknown = {name: said for each in flags.values() for name, said in each.unknown.items()}
            hint = unknown.get(key) or hint_for(key, typed_value(rest, error.option_name), catalog, flag)
            if not hint:
                message = f"{error.message}{elsewhere(catalog)}"
                raise click.NoSuchOption(error.option_name, message, error.possibilities, ctx) from None
            # click drops possibilities that are not spelt alike
            raise click.UsageError(f"{error.message}{hint}", ctx) from None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The core's flags, and those of choices."""
        flags: dict[str, RoleFlags] = ctx.meta.get(_FLAGS, {})
        taken: list[click.Option] = ctx.meta.get(_TAKEN, [])
        return [*super().get_params(ctx), *(option for each in flags.values() for option in each.options), *taken]

    def _switches(self, ctx: click.Context) -> dict[str, str]:
        """The flag that says no to each that says yes."""
        return {param.opts[0]: param.secondary_opts[0] for param in self.get_params(ctx) if param.secondary_opts}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options by family, then by role."""
        flags: dict[str, RoleFlags] = ctx.meta.get(_FLAGS, {})
        grouped = {id(option) for options in self.sections.values() for option in options}
        grouped |= {id(option) for each in flags.values() for option in each.options}
        shown = (param for param in self.get_params(ctx) if isinstance(param, click.Option) and not param.hidden)
        own = [param for param in shown if id(param) not in grouped]
        for title, options in {"Options": own, **self.sections}.items():
            with formatter.section(title):
                formatter.write_dl([_help_record(option, ctx) for option in options], col_max=36)
        for role, each in flags.items():
            with formatter.section(f"Settings of a choice, {role.replace('_', ' ')}"):
                if each.options:
                    formatter.write_dl([_help_record(option, ctx) for option in each.options], col_max=36)
                for note in each.notes:
                    formatter.write_text(note)
        with formatter.section("Settings of plugins"):
            formatter.write_text(
                "--ROLE.NAME.KEY VALUE, as in --engine.local.workers 4, or --ROLE.NAME.TABLE.KEY VALUE; "
                "`slime plan` shows them all."
            )


def catalog_of(ctx: click.Context, plugins: PluginSet) -> Catalog:
    """The catalog of a run: that which its flags were read with, unless the run file names other plugins."""
    read_with, catalog = ctx.meta[_CATALOG]
    return catalog if plugins == read_with else Catalog.discover(plugins)


def _taken_options(catalog: Catalog, arguments: Sequence[str], known: set[str]) -> Iterator[click.Option]:
    """The flags among those that are typed which have another framework's name for exactly the same."""
    typed = {flag(key_typed(each)) for each in arguments if each.startswith("--")} - known
    for name, each in TakenNames(catalog).names.items():
        if flag(name) in typed:
            yield click.Option([flag(name)], is_flag=each.is_switch, default=None, hidden=True)


def _help_record(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    names, text = option.get_help_record(ctx) or ("", "")
    return (f"--[no-]{option.opts[0].removeprefix('--')}" if option.secondary_opts else names), text


def typed_values(flags: Mapping[str, object]) -> dict[str, Json]:
    """What the command line says, by the keys that it says it of."""
    typed: dict[str, Json] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        typed[key] = {"use": _parse_uses(key, value)} if key in SELECTABLE else _plain(key, value)
    return typed


def collect_values(
    run_file: Path | None,
    flags: Mapping[str, object],
    settings: Mapping[str, Json],
    catalog: Catalog,
) -> dict[str, Json]:
    """The run file with the command line on top; a flag wins over every spelling of its key in the file.

    Args:
        run_file: the file, if any.
        flags: what click read.
        settings: what `split_settings` found.
        catalog: what is offered: which choices have which keys, which names from elsewhere are taken.
    """
    flat_keys, names = FlatKeys(catalog), TakenNames(catalog)
    base = names.place(read_run_file(run_file) if run_file else {}).values
    over = merge(names.place(typed_values(flags)).values, settings)
    refuse_unfit(over, "the command line", allow_null=True)
    both = merge(base, over)
    for name in over:
        for path in _other_places(name, both, flat_keys):
            base = _without(base, path)
    for name in [name for name in base if name not in over]:
        places = _other_places(name, both, flat_keys)
        if any(_has(over, path) for path in (places[:1] if name in CHOOSES else places)):
            base.pop(name)
    return merge(base, over)


def _other_places(name: str, values: Mapping[str, Json], flat_keys: FlatKeys) -> tuple[tuple[str, ...], ...]:
    """Where else a run file may say what this key says."""
    if name in FAMILY_OF_KEY:
        return spellings(name, values, flat_keys)
    return () if name in SELECTABLE else flat_keys.places_of(name, values)


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
        if flag.count(".") > MAX_DEPTH:
            raise ConfigError(f"{flag[:40]}...: has over {MAX_DEPTH} parts; settings are written --ROLE.NAME.KEY VALUE")
        role, key = role.replace("-", "_"), key.replace("-", "_")
        if not name or not key or role not in SELECTABLE:
            raise ConfigError(f"{flag}: settings are written --ROLE.NAME.KEY VALUE; roles are {', '.join(SELECTABLE)}")
        bare = not equals and (not remaining or remaining[0].startswith("--"))
        given = value if equals else "true" if bare else remaining.popleft()
        settings = merge(settings, {role: {name: {key: literal(given)}}})
    return rest, settings


def in_tables(settings: Mapping[str, Json], catalog: Catalog) -> dict[str, Json]:
    """Settings that lie in a table of a choice, `--engine.sglang.server.log_level`, at their places.

    Only who knows the choices can tell one from `--reward.my_module.score.top`, whose choice is `my_module.score`.

    Args:
        settings: what `split_settings` found.
        catalog: what is offered.
    """
    placed: dict[str, Json] = {}
    for role, names in settings.items():
        known = {name for qualified in catalog.choices(role) for name in (qualified, qualified.rpartition("/")[2])}
        for written, given in names.items() if isinstance(names, dict) else ():
            name = next((each for each in known if written.startswith(f"{each}.")), written)
            for table in reversed(written.removeprefix(name).split(".")[1:]):
                given = {table.replace("-", "_"): given}
            placed = merge(placed, {role: {name: given}})
    return placed


def is_setting(key: str) -> bool:
    """Whether a flag of `slime train` sets this: a key, a role, or a setting of a choice."""
    head = key.partition(".")[0]
    return head in {*FAMILY_OF_KEY, *SELECTABLE, *CHOOSES} or bool(FlatKeys(Catalog.discover()).owners_of(head))


def _choosing_option(name: str, role: str) -> click.Option:
    return click.Option([flag(name)], metavar="NAME", help=f"The same as {flag(role)}, by slime's name.")


def _role_option(role: str) -> click.Option:
    default = ", ".join(DEFAULT_USE[role])
    hint = "required, or --group-reward" if role == "reward" else f"default: {default}" if default else ""
    several = "; several: repeat" if SPECS[role].many else ""
    text = f"Which {role.replace('_', ' ')}{several}."
    metavar = "NAME[=WEIGHT]" if role in WEIGHTED else "NAME"
    return click.Option([flag(role)], multiple=True, metavar=metavar, help=f"{text}  [{hint}]" if hint else text)


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
    if key in ("apply_chat_template_kwargs", "multimodal_keys", "served_models"):
        return literal(str(value))
    if isinstance(value, tuple):
        return [str(each) for each in value] if key in FAMILY_OF_KEY else _names(value)
    if isinstance(value, bool):
        return value
    return str(value) if key in FAMILY_OF_KEY else literal(str(value))


def _names(given: Sequence[object]) -> Json:
    """What a flag of names says: one name, a JSON list, or the flag once for each of several."""
    read = [literal(str(each)) for each in given]
    if len(read) == 1:
        return read[0]
    return [name for each in read for name in (each if isinstance(each, list) else [each])]
