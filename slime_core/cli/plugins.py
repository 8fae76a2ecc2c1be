"""The options `--plugin` and `--no-plugin`, the group `slime plugins`, and the row of a listed plugin.

This module imports no role: `slime plugins list` without `--load` and `--role` needs none.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from slime_core.catalog import PluginState, PluginStatus, allowed_by_environment
from slime_core.cli.main import Commands, LazyGroup
from slime_core.config import add_plugins, parse_plugins
from slime_core.roles import PluginSet
from slime_core.sample import Json

if TYPE_CHECKING:
    from slime_core.catalog import Catalog

# `--plugin` and `--no-plugin`, for every command that loads plugins.

CommandT = TypeVar("CommandT", bound=Callable[..., object])
_REQUIRED, _LEFT_OUT = "slime_core.plugins.required", "slime_core.plugins.left_out"


def plugin_options(command: CommandT) -> CommandT:
    """Give a command `--plugin NAME` and `--no-plugin NAME`; `discover` and `plugin_set` read them."""
    required = click.option(
        "--plugin",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep(_REQUIRED),
        help="Require this plugin and put it first; or load a local module, such as ./my_plugin.py. Repeatable.",
    )
    left_out = click.option(
        "--no-plugin",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep(_LEFT_OUT),
        help="Leave this plugin out. Repeatable.",
    )
    return required(left_out(command))


def _keep(key: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
        ctx.meta[key] = value

    return callback


def with_plugin_options(ctx: click.Context, values: Mapping[str, Json]) -> dict[str, Json]:
    """A run file's values with what the command line and SLIME_PLUGINS say about plugins on top."""
    return add_plugins(values, ctx.meta.get(_REQUIRED, ()), ctx.meta.get(_LEFT_OUT, ()), allowed_by_environment())


def plugin_set(ctx: click.Context, values: Mapping[str, Json] | None = None) -> PluginSet:
    """Which plugins a command loads, with a run file's values or without one."""
    return parse_plugins(with_plugin_options(ctx, values or {}).get("plugins", {}))


def discover(ctx: click.Context) -> "Catalog":
    """Load the plugins that the command line asks for; errors as in `Catalog.discover`."""
    from slime_core.catalog import Catalog  # and with it every role: not for commands that only read metadata

    return Catalog.discover(plugin_set(ctx))


# `slime plugins …`: what is installed and what it offers.

COMMANDS: Commands = {
    "list": ("slime_core.cli.plugin_list:list_command", "List what is installed."),
    "show": ("slime_core.cli.plugin_facts:show", "Show a plugin or a choice: place, settings, isolation, hooks."),
}


@click.group(cls=LazyGroup, known=COMMANDS, prefix="plugins.")
def plugins() -> None:
    """List, show, check and write plugins."""


# A plugin as `slime plugins list` and `show` describe it.


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
