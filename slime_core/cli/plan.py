"""`slime plan`: everything resolved and checked, nothing started."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from slime_core.cli.run_options import RunCommand
from slime_core.cli.train import plan_run
from slime_core.config import Plan, describe_plan


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def plan(ctx: click.Context, /, run_file: Path | None, as_json: bool, **flags: object) -> None:
    """Show what RUN_FILE and flags resolve to: role, plugin, version, place, settings."""
    resolved = plan_run(run_file, flags, ctx.obj)
    if as_json:
        click.echo(json.dumps(describe_plan(resolved), indent=2))
    else:
        show_plan(resolved, Console())


def show_plan(resolved: Plan, console: Console) -> None:
    """Print a plan as tables."""
    described = describe_plan(resolved)
    table = Table(title="choices", title_justify="left", box=None, pad_edge=False)
    for column in ("role", "choice", "plugin", "defined at", "settings"):
        table.add_column(column, overflow="fold")
    for row in described["choices"]:
        settings = ", ".join(f"{key}={value}" for key, value in row["settings"].items())
        weight = "" if row["weight"] == 1.0 else f" x {row['weight']:g}"
        table.add_row(row["role"], row["choice"] + weight, f"{row['plugin']} {row['version']}", row["origin"], settings)
    console.print(table)
    keys = Table(title="\nkeys", title_justify="left", box=None, pad_edge=False, show_header=False)
    for key, value in described["keys"].items():
        keys.add_row(key, json.dumps(value))
    console.print(keys)
    console.print(f"\nweights travel by: {described['transport']}")
    console.print(f"model architecture: {described['architecture']}")
    if described["unused"]:
        console.print(f"unused sections: {', '.join(described['unused'])}")
