"""`slime plugins list`: what is installed, in which order, and on request what it offers."""

import json
from collections.abc import Sequence

import click

from slime_core.catalog import select_plugins
from slime_core.cli.plugins import ListedRow, listed_row, plugin_options, plugin_set

_COLOURS = {"failed": "red", "excluded": "yellow"}


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
        rows = [listed_row(each, order) for order, each in enumerate(select_plugins(plugins), 1)]
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
