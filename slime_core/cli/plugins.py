"""`slime plugins`: what is installed, from where, and what it offers."""

import json

import click
from rich.console import Console
from rich.table import Table

from slime_core.catalog import Catalog, PluginState
from slime_core.roles import SPECS


@click.group()
def plugins() -> None:
    """Show the installed plugins."""


@plugins.command("list")
@click.option("--role", type=click.Choice(list(SPECS)), help="Only what fills this role.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_plugins(role: str | None, as_json: bool) -> None:
    """List plugins and their choices; broken ones with the reason."""
    catalog = Catalog.discover()
    rows = [
        {
            "role": each,
            "choice": name,
            "plugin": registered.plugin,
            "version": registered.version,
            "origin": registered.origin,
            "summary": registered.spec.summary,
        }
        for each in ([role] if role else SPECS)
        for name, registered in catalog.choices(each).items()
    ]
    broken = [status for status in catalog.statuses if status.state is not PluginState.LOADED]
    if as_json:
        problems = [{"plugin": each.plugin, "version": each.version, "detail": each.detail} for each in broken]
        click.echo(json.dumps({"choices": rows, "broken": problems}, indent=2))
        return
    console = Console()
    table = Table(box=None, pad_edge=False)
    for column in ("role", "choice", "plugin", "version", "summary"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(row[column] for column in ("role", "choice", "plugin", "version", "summary")))
    console.print(table)
    for status in broken:
        console.print(str(status), style="red", markup=False)
