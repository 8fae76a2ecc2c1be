"""`slime plugins schema NAME`: the JSON Schema of a choice's settings."""

import json

import click

from slime_core.cli.plugin_options import plugin_options
from slime_core.cli.plugins.find import find_choices, open_catalog
from slime_core.config import settings_schema
from slime_core.errors import ConfigError
from slime_core.roles import SPECS


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(SPECS)), metavar="ROLE", help=f"Its role: {', '.join(SPECS)}.")
@plugin_options
@click.pass_context
def schema(ctx: click.Context, name: str, role: str | None) -> None:
    r"""Print the JSON Schema (2020-12) of the settings of a choice: what may stand in its section of the run file.

    \b
    slime plugins schema reward/math
    slime plugins schema local --role engine
    """
    found = find_choices(open_catalog(ctx, name), name, role)
    if len(found) > 1:
        several = ", ".join(f"{each.spec.role}/{each.qualified}" for each in found)
        raise ConfigError(f"{name!r} means {len(found)} choices: write one of {several}")
    click.echo(json.dumps(settings_schema(found[0].spec), indent=2))
