"""The options `--plugin` and `--no-plugin`, and the group `slime plugins` with its command `list`.

This module imports no role: `slime plugins list` without `--load` and `--role` needs none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from slime_core.catalog import PluginState, PluginStatus, allowed_by_environment, installed_statuses
from slime_core.cli.main import Commands, LazyGroup
from slime_core.config import add_plugins, parse_plugins
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
}


@click.group(cls=LazyGroup, known=COMMANDS, prefix="plugins.")
def plugins() -> None:
    """List, show, check and write plugins."""


# `slime plugins list`: what is installed, in which order, and on request what it offers.

_COLOURS = {"failed": "red", "excluded": "yellow"}


class ListedRow(TypedDict):
    """One listed plugin; `choices` and `hooks` are None if it was not loaded. docs/formats.md describes the fields."""

    order: int
    plugin: str
    version: str
    entry_point: str
    origin: str
    state: str
    detail: str
    api: str
    choices: list[dict[str, str]] | None
    hooks: list[dict[str, str]] | None


def listed_row(status: PluginStatus, order: int) -> ListedRow:
    """A plugin as its metadata and its loading describe it; `order` counts from 1."""
    return {
        "order": 0 if status.state is PluginState.EXCLUDED else order,
        "plugin": status.plugin,
        "version": status.version,
        "entry_point": status.name,
        "origin": status.origin,
        "state": status.state.value,
        "detail": status.detail,
        "api": "",
        "choices": None,
        "hooks": None,
    }


@click.command("list")
@click.option("--role", metavar="ROLE", help="Load the plugins; show only what fills this role.")
@click.option("--load", is_flag=True, help="Load the plugins, and show what each offers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_options
@click.pass_context
def list_command(ctx: click.Context, role: str | None, load: bool, as_json: bool) -> None:
    """List plugins in the order of hook calls; with --load what they offer, and broken ones with the reason."""
    plugins = plugin_set(ctx)
    if load or role is not None:
        from slime_core.cli.plugin_facts import loaded_rows

        rows = loaded_rows(plugins, role)
    else:
        rows = [listed_row(each, order) for order, each in enumerate(installed_statuses(plugins), 1)]
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "plugins": rows}, indent=2))
        return
    for row in rows:
        if not role or row["choices"] or row["detail"]:
            _show(row, with_hooks=not role)
    _advise(rows)


def _show(row: ListedRow, *, with_hooks: bool) -> None:
    number = f"{row['order']:2}" if row["order"] else " -"
    name = click.style(row["plugin"], fg="cyan", bold=True)
    api = f"  API {row['api']}" if row["api"] else ""
    state = "" if row["state"] in ("loaded", "unknown") else click.style(f"  {row['state']}", fg=_COLOURS[row["state"]])
    click.echo(f"{number}  {name} {row['version']}{api}{state}".rstrip())
    if row["detail"]:
        click.echo(f"      {click.style(row['detail'], fg=_COLOURS.get(row['state']))}")
    choices = [(each["role"], each["choice"].removeprefix(f"{row['plugin']}/")) for each in row["choices"] or ()]
    wide, roles = max((len(each) for _, each in choices), default=0), max((len(role) for role, _ in choices), default=0)
    for (role, choice), each in zip(choices, row["choices"] or (), strict=True):
        summary = click.style(each["summary"], dim=True)
        click.echo(f"      {role:{roles}}  {click.style(f'{choice:{wide}}', bold=True)}  {summary}".rstrip())
    if row["hooks"] and with_hooks:
        click.echo(f"      hooks  {', '.join(dict.fromkeys(each['hook'] for each in row['hooks']))}")


def _advise(rows: Sequence[ListedRow]) -> None:
    if any(each["state"] == "unknown" for each in rows):
        click.echo("\n`slime plugins list --load` shows what they offer, `slime plugins show NAME` what one does.")
    if any(each["state"] == "failed" for each in rows):
        click.echo("\n`slime plugins check NAME` says more about what is wrong.")
