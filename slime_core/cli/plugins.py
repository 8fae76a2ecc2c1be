"""The options `--plugin` and `--no-plugin`, and `slime plugins list`: which plugins are installed and what they offer.

Listing imports no plugin, so this module imports no role. `plugin_facts.py` shows one plugin in full.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from slime_core.catalog import Listed, allowed_by_environment, list_plugins
from slime_core.cli.main import Commands, OpenGroup
from slime_core.config import (
    RUN_FILES,
    add_plugins,
    parse_plugins,
    read_run_file,
)
from slime_core.errors import ConfigError, UnknownName, did_you_mean
from slime_core.roles import PluginSet
from slime_core.sample import Json

if TYPE_CHECKING:
    from slime_core.catalog import Catalog

# `--plugin` and `--no-plugin`, for every command that loads plugins.

CommandT = TypeVar("CommandT", bound=Callable[..., object])
_ASKED, _LEFT_OUT = "slime_core.plugins.asked", "slime_core.plugins.left_out"


def plugin_options(command: CommandT) -> CommandT:
    """Give a command `--plugin NAME` and `--no-plugin NAME`; `discover` and `plugin_set` read them."""
    asked = click.option(
        "--plugin",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep(_ASKED),
        help="Require this plugin and put it first; or load a module of yours, ./my_plugin.py. Repeatable.",
    )
    left_out = click.option(
        "--no-plugin",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep(_LEFT_OUT),
        help="Leave this plugin out. Repeatable.",
    )
    return asked(left_out(command))


def _keep(key: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
        ctx.meta[key] = value

    return callback


def with_plugin_options(ctx: click.Context, values: Mapping[str, Json]) -> dict[str, Json]:
    """A run file's values with what the command line and SLIME_PLUGINS say about plugins on top."""
    return add_plugins(values, ctx.meta.get(_ASKED, ()), ctx.meta.get(_LEFT_OUT, ()), allowed_by_environment())


def early_values(arguments: Sequence[str]) -> dict[str, Json]:
    """The keys of the run file on a command line, as far as can be told before its flags are known; without one, none.

    What is wrong with it is said when it is read.
    """
    files = (Path(each) / "run.toml" if Path(each).is_dir() else Path(each) for each in arguments)
    run_file = next((each for each in files if each.suffix in RUN_FILES and each.is_file()), None)
    with contextlib.suppress(ConfigError):
        return read_run_file(run_file) if run_file else {}
    return {}


def early_plugins(arguments: Sequence[str], values: Mapping[str, Json]) -> PluginSet:
    """Which plugins a command line asks for, as far as can be told before its flags are known.

    Args:
        arguments: of the command line.
        values: `early_values` of them.
    """
    named: dict[str, list[str]] = {"--plugin": [], "--no-plugin": []}
    for argument, following in itertools.pairwise((*arguments, "")):
        flag, equals, value = argument.partition("=")
        if flag in named:
            named[flag].append(value if equals else following)
    with contextlib.suppress(ConfigError):
        given = add_plugins(values, named["--plugin"], named["--no-plugin"], allowed_by_environment())
        return parse_plugins(given.get("plugins", {}))
    return PluginSet()


def plugin_set(ctx: click.Context, values: Mapping[str, Json] | None = None) -> PluginSet:
    """Which plugins a command loads, with a run file's values or without one."""
    return parse_plugins(with_plugin_options(ctx, values or {}).get("plugins", {}))


def discover(ctx: click.Context) -> "Catalog":
    """Load the plugins that the command line asks for; errors as in `Catalog.discover`."""
    from slime_core.catalog import Catalog  # and with it every role: not for commands that only read metadata

    return Catalog.discover(plugin_set(ctx))


# `slime plugins …`: what is installed and what it offers.

COMMANDS: Commands = {
    "list": ("slime_core.cli.plugins:list_command", "List what is installed."),
    "show": ("slime_core.cli.plugin_facts:show", "Show a plugin or a choice: place, settings, isolation, hooks."),
    "schema": ("slime_core.cli.plugin_facts:schema", "Print the JSON Schema of a choice's settings."),
}


@click.group(cls=OpenGroup, known=COMMANDS, prefix="plugins.")
def plugins() -> None:
    """List, show, check and write plugins."""


# `slime plugins list`: what is installed, in which order, and what it offers; imports no plugin.

NARROW = 12
"""Columns below which a summary is left out."""
_COLOURS = {"broken": "red", "refused": "red", "excluded": "yellow", "unknown": "yellow"}

_SHOWN = {"unknown": "not loaded yet"}


@click.command("list")
@click.option("--role", metavar="ROLE", help="Only what fills this role.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--requirements", is_flag=True, help="Print one pip requirement a line, of what can be used.")
@plugin_options
@click.pass_context
def list_command(ctx: click.Context, role: str | None, as_json: bool, requirements: bool) -> None:
    """List plugins in the order of hook calls, with what they offer; broken ones with the reason.

    \b
    slime plugins list
    slime plugins list --role reward
    slime plugins list --requirements > plugins.txt

    What a plugin offers is remembered since it was last loaded. Nothing is imported, unless --role asks for what is
    not known yet.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if role is not None:
        role = _known(role)
    listed = list_plugins(plugin_set(ctx), load=role is not None)
    if requirements:
        usable = (
            f"{each.dist}=={each.version}" for each in listed if each.dist and each.state in ("loaded", "unknown")
        )
        for line in dict.fromkeys(usable):
            click.echo(line)
    elif as_json:
        click.echo(json.dumps(as_plain_data(listed, role), indent=2))
    else:
        for each in listed:
            _show(each, role)
        _advise(listed)


def _known(role: str) -> str:
    from slime_core.roles import SPECS  # and with it every role: not where the cache is all that is read

    plain = role.replace("-", "_")
    if plain not in SPECS:
        raise UnknownName(f"no role {role!r}.{did_you_mean(role, SPECS)} Roles: {', '.join(SPECS)}.")
    return plain


def as_plain_data(listed: tuple[Listed, ...], role: str | None) -> dict[str, Json]:
    """The list as docs/formats.md describes it."""
    rows: list[Json] = []
    for each in listed:
        facts = each.facts
        choices: list[Json] | None = None
        hooks: list[Json] | None = None
        if facts is not None:
            choices = [
                {
                    "role": choice.role,
                    "choice": f"{each.plugin}/{choice.name}",
                    "summary": choice.summary,
                    "origin": choice.origin,
                }
                for choice in facts.choices
                if role in (None, choice.role)
            ]
            hooks = [{"hook": hook.hook, "origin": hook.origin} for hook in facts.hooks]
        rows.append(
            {
                "order": each.order,
                "plugin": each.plugin,
                "version": each.version,
                "entry_point": each.name,
                "origin": each.origin,
                "state": each.state,
                "phase": facts.phase.value if facts else "",
                "detail": facts.detail if facts else "",
                "api": facts.api if facts else "",
                "choices": choices,
                "hooks": hooks,
            }
        )
    return {"schema_version": 1, "plugins": rows}


def _show(listed: Listed, role: str | None) -> None:
    """A plugin and what it offers; with a role, only plugins that have something to say about it."""
    facts = listed.facts
    choices = [each for each in facts.choices if role in (None, each.role)] if facts else []
    if role and facts and not choices and not facts.detail:
        return
    number = f"{listed.order:2}" if listed.order else " -"
    name = click.style(listed.plugin, fg="cyan", bold=True)
    api = f"  API {facts.api}" if facts and facts.api else ""
    shown = _SHOWN.get(listed.state, listed.state)
    state = "" if listed.state == "loaded" else click.style(f"  {shown}", fg=_COLOURS[listed.state])
    click.echo(f"{number}  {name} {listed.version}{api}{state}".rstrip())
    if facts and facts.detail:
        click.echo(f"      {click.style(f'{facts.phase.value}: {facts.detail}', fg=_COLOURS.get(listed.state))}")
    names = max((len(each.name) for each in choices), default=0)
    roles = max((len(each.role) for each in choices), default=0)
    for each in choices:
        summary = _fitting(each.summary, taken=6 + roles + 2 + names + 2)
        click.echo(f"      {each.role:{roles}}  {click.style(f'{each.name:{names}}', bold=True)}  {summary}".rstrip())
    if facts and facts.hooks and not role:
        click.echo(f"      hooks  {', '.join(dict.fromkeys(each.hook for each in facts.hooks))}")


def _fitting(text: str, taken: int) -> str:
    """A text, or as much of it as fits on the rest of the line."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return text
    room = shutil.get_terminal_size().columns - taken
    if room < NARROW:
        return ""
    return click.style(text if len(text) <= room else f"{text[: room - 1]}…", dim=True)


def _advise(listed: tuple[Listed, ...]) -> None:
    unknown = [each.plugin for each in listed if each.facts is None]
    if unknown:
        click.echo(
            f"\nnot loaded yet: {', '.join(unknown)}. `slime plugins show NAME` loads and shows what one offers."
        )
    if any(each.state in ("broken", "refused") for each in listed):
        click.echo("\n`slime plugins check NAME` says more about what is wrong.")
