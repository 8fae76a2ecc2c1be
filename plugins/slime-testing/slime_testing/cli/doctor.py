"""`slime doctor`: looks for common problems, and prints how to fix them."""

import json
import textwrap
import warnings

import click

from slime_core.catalog import Catalog, PluginWarning
from slime_core.cli.plugins import plugin_options, plugin_set
from slime_core.processes import Protection
from slime_core.roles import Health
from slime_core.sample import Json
from slime_core.stats import PluginStats
from slime_testing.cli import SEED, setup_of
from slime_testing.doctor import OWN, Examined, examine

_MARKS = {Health.OK: ("ok     ", "green"), Health.WARNING: ("warning", "yellow"), Health.ERROR: ("error  ", "red")}


@click.command(short_help="Look for common problems, and print how to fix them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_options
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> int:
    """Check this machine, this installation and its plugins. Exit code 1 if there is an error.

    Plugins can add checks (the role `check`). The command changes nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # a finding reports it
        catalog = Catalog.discover(plugin_set(ctx), strict=False)
    done: list[Examined] = []
    isolated = Protection(plugins=catalog.plugin_set, seed=SEED, stats=PluginStats())
    for examined in examine(catalog, setup_of(catalog, isolated)):
        done.append(examined)
        if not as_json:
            _show(examined)
    errors = sum(each.finding.health is Health.ERROR for each in done)
    warned = sum(each.finding.health is Health.WARNING for each in done)
    if as_json:
        rows: list[Json] = [_row(each) for each in done]
        click.echo(json.dumps({"schema_version": 1, "errors": errors, "warnings": warned, "checks": rows}, indent=2))
    else:
        click.echo(f"\n{_count(errors, 'error')}, {_count(warned, 'warning')}, {len(done)} checks")
    return 1 if errors else 0


def _show(examined: Examined) -> None:
    finding = examined.finding
    mark, colour = _MARKS[finding.health]
    name = examined.name.removeprefix(f"{OWN}/")
    lines = textwrap.wrap(f"{name}: {finding.text}", 100, break_long_words=False, break_on_hyphens=False)
    click.echo(f"{click.style(mark, fg=colour)}  {lines[0]}")
    for line in lines[1:]:
        click.echo(f"         {line}")
    if finding.advice and finding.health is not Health.OK:
        click.echo(f"         -> {finding.advice}")


def _row(examined: Examined) -> dict[str, Json]:
    finding = examined.finding
    return {
        "check": examined.name,
        "summary": examined.summary,
        "health": finding.health.value,
        "text": finding.text,
        "advice": finding.advice,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
