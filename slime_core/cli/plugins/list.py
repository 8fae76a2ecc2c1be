"""`slime plugins list`: what is installed, from where, and what it offers."""

import json
from typing import TypedDict

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slime_core.catalog import Catalog, PluginState, PluginStatus
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.roles import SPECS


class _Row(TypedDict):
    role: str
    choice: str
    plugin: str
    version: str
    origin: str
    summary: str


@click.command("list")
@click.option("--role", type=click.Choice(list(SPECS)), help="Only what fills this role.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_plugins(role: str | None, as_json: bool) -> None:
    """List plugins and their choices; broken ones with the reason."""
    catalog = Catalog.discover()
    rows = [
        _Row(
            role=each,
            choice=name,
            plugin=registered.plugin,
            version=registered.version,
            origin=registered.origin,
            summary=registered.spec.summary,
        )
        for each in ([role] if role else SPECS)
        for name, registered in catalog.choices(each).items()
    ]
    broken = [status for status in catalog.statuses if status.state is not PluginState.LOADED]
    if as_json:
        problems = [{"plugin": each.plugin, "version": each.version, "detail": each.detail} for each in broken]
        click.echo(json.dumps({"choices": rows, "broken": problems}, indent=2))
        return
    console = Console()
    for status in catalog.statuses:
        if status.state is PluginState.LOADED:
            _show(status, rows, [] if role else _watched(catalog, status.plugin), console)
    for status in broken:
        console.print(str(status), style="red", markup=False)


def _show(status: PluginStatus, rows: list[_Row], watched: list[str], console: Console) -> None:
    """A plugin and what it offers."""
    table = Table.grid(padding=(0, 0, 0, 2))
    for fixed in (True, False, False):
        table.add_column(no_wrap=fixed, overflow="fold")
    for row in rows:
        if row["plugin"] == status.plugin:
            name = row["choice"].removeprefix(f"{status.plugin}/")
            table.add_row(row["role"], Text(name, "bold"), Text(row["summary"], "dim"))
    if watched:
        table.add_row("run hooks", Text(", ".join(watched)), "")
    if table.row_count:
        console.print(Text.assemble((status.plugin, "bold cyan"), f" {status.version}"))
        console.print(table)


def _watched(catalog: Catalog, plugin: str) -> list[str]:
    return [hook for hook in HOOK_OF_EVENT.values() if any(each.plugin == plugin for each in catalog.listeners(hook))]
