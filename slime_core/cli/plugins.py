"""The options `--plugin` and `--no-plugin`, and `slime plugins list`: which plugins are installed and what they offer.

Listing without `--load` imports no plugin, so this module imports no role. `plugin_facts.py` shows one plugin in full.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from slime_core.catalog import PluginState, PluginStatus, allowed_by_environment, installed_statuses
from slime_core.cli.main import Commands, OpenGroup
from slime_core.config import (
    RUN_FILES,
    add_plugins,
    parse_plugins,
    read_run_file,
)
from slime_core.errors import ConfigError
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


# `slime plugins list`: what is installed, in which order; imports a plugin only if it must show what that offers.

NARROW = 12
"""Columns below which a summary is left out."""
_COLOURS = {"broken": "red", "refused": "red", "excluded": "yellow"}


@click.command("list")
@click.option("--role", metavar="ROLE", help="Load the plugins; show only what fills this role.")
@click.option("--load", is_flag=True, help="Load the plugins, and show what each offers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--requirements", is_flag=True, help="Print one pip requirement a line, of what can be used.")
@plugin_options
@click.pass_context
def list_command(ctx: click.Context, role: str | None, load: bool, as_json: bool, requirements: bool) -> None:
    """List plugins in the order of hook calls; with --load what they offer, and broken ones with the reason.

    \b
    slime plugins list
    slime plugins list --role reward
    slime plugins list --requirements > plugins.txt
    """  # noqa: D301  # \b keeps click from filling the lines below it
    plugins = plugin_set(ctx)
    if role is not None or load:
        from slime_core.cli.plugin_facts import loaded_rows  # and with it every role

        rows = loaded_rows(plugins, role)
    else:
        rows = listed_rows(installed_statuses(plugins))
    if requirements:
        usable = (f"{each['plugin']}=={each['version']}" for each in rows if each["state"] in ("loaded", "unknown"))
        for line in dict.fromkeys(each for each in usable if not each.endswith("==")):
            click.echo(line)
    elif as_json:
        click.echo(json.dumps({"schema_version": 1, "plugins": rows}, indent=2))
    else:
        for each in rows:
            _show(each, role)
        _advise(rows)


class OfferedRow(TypedDict):
    """One choice of a listed plugin."""

    role: str
    choice: str
    summary: str
    origin: str


class ListedRow(TypedDict):
    """One listed plugin; `choices` and `hooks` are None if it was not loaded. docs/formats.md describes the fields."""

    order: int
    plugin: str
    version: str
    entry_point: str
    origin: str
    state: str
    phase: str
    detail: str
    api: str
    choices: list[OfferedRow] | None
    hooks: list[dict[str, str]] | None


def listed_rows(statuses: Sequence[PluginStatus]) -> list[ListedRow]:
    """The rows of plugins, as far as their metadata tells."""
    return [
        ListedRow(
            order=0 if each.state is PluginState.EXCLUDED else order,
            plugin=each.plugin,
            version=each.version,
            entry_point=each.name,
            origin=each.origin,
            state=each.state.value,
            phase="" if each.state is PluginState.UNKNOWN else each.phase.value,
            detail=each.detail,
            api="",
            choices=None,
            hooks=None,
        )
        for order, each in enumerate(statuses, 1)
    ]


def _show(row: ListedRow, role: str | None) -> None:
    choices = row["choices"] or []
    if role and not choices and not row["detail"]:
        return
    number = f"{row['order']:2}" if row["order"] else " -"
    name = click.style(row["plugin"], fg="cyan", bold=True)
    api = f"  API {row['api']}" if row["api"] else ""
    state = "" if row["state"] in ("loaded", "unknown") else click.style(f"  {row['state']}", fg=_COLOURS[row["state"]])
    click.echo(f"{number}  {name} {row['version']}{api}{state}".rstrip())
    if row["detail"]:
        reason = f"{row['phase']}: {row['detail']}"
        click.echo(f"      {click.style(reason, fg=_COLOURS.get(row['state']))}")
    names = [each["choice"].removeprefix(f"{row['plugin']}/") for each in choices]
    wide, roles = max(map(len, names), default=0), max((len(each["role"]) for each in choices), default=0)
    for name, each in zip(names, choices, strict=True):
        summary = _fitting(each["summary"], taken=6 + roles + 2 + wide + 2)
        click.echo(f"      {each['role']:{roles}}  {click.style(f'{name:{wide}}', bold=True)}  {summary}".rstrip())
    if row["hooks"] and not role:
        click.echo(f"      hooks  {', '.join(dict.fromkeys(each['hook'] for each in row['hooks']))}")


def _fitting(text: str, taken: int) -> str:
    """A text, or as much of it as fits on the rest of the line."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return text
    room = shutil.get_terminal_size().columns - taken
    if room < NARROW:
        return ""
    return click.style(text if len(text) <= room else f"{text[: room - 1]}…", dim=True)


def _advise(rows: Sequence[ListedRow]) -> None:
    if any(each["state"] == "unknown" for each in rows):
        click.echo("\n`slime plugins list --load` shows what they offer, `slime plugins show NAME` what one does.")
    if any(each["state"] in ("broken", "refused") for each in rows):
        click.echo("\n`slime plugins check NAME` says more about what is wrong.")
