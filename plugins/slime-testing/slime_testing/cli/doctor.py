"""`slime doctor`: looks for what usually goes wrong, says what to type, and mends what it may."""

import json
import textwrap
import warnings

import click

from slime_core.catalog import Catalog, PluginWarning
from slime_core.cli.plugins import plugin_options, plugin_set
from slime_core.processes import Protection
from slime_core.roles import Finding, Health
from slime_core.sample import Json
from slime_core.stats import PluginStats
from slime_testing.cli import SEED, setup_of
from slime_testing.doctor import OWN, Examined, examine

_MARKS = {Health.OK: ("ok     ", "green"), Health.WARNING: ("warning", "yellow"), Health.ERROR: ("error  ", "red")}


@click.command(short_help="Look for what usually goes wrong, and what to type.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--fix", is_flag=True, help="Offer to mend what can be mended, one question each.")
@plugin_options
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, fix: bool) -> int:
    """Look at this machine, this installation and its plugins; exit code 1 when something does not work.

    Plugins add checks of their own (the role `check`). Nothing is changed without --fix and your consent.

    \b
    slime doctor
    slime doctor --fix
    """  # noqa: D301  # \b keeps click from filling the lines below it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # a finding says it
        catalog = Catalog.discover(plugin_set(ctx), strict=False)
    done: list[tuple[Examined, Finding, str]] = []
    isolated = Protection(plugins=catalog.plugin_set, seed=SEED, stats=PluginStats())
    for examined in examine(catalog, setup_of(catalog, isolated)):
        finding, did = examined.finding, ""
        if not as_json:
            _show(examined, finding)
        if fix and finding.fix is not None:
            finding, did = _mend(examined, finding, quiet=as_json)
        done.append((examined, finding, did))
    errors = sum(finding.health is Health.ERROR for _, finding, _ in done)
    warned = sum(finding.health is Health.WARNING for _, finding, _ in done)
    if as_json:
        rows: list[Json] = [_row(*each) for each in done]
        click.echo(json.dumps({"schema_version": 1, "errors": errors, "warnings": warned, "checks": rows}, indent=2))
    else:
        click.echo(f"\n{_count(errors, 'error')}, {_count(warned, 'warning')}, {len(done)} checks")
    return 1 if errors else 0


def _mend(examined: Examined, finding: Finding, *, quiet: bool) -> tuple[Finding, str]:
    assert finding.fix is not None, "asked for"
    if not click.confirm(f"{examined.name}: {finding.text}. Mend it?", err=True):
        return finding, ""
    try:
        did = finding.fix()
    except Exception as error:  # a fixer is a plugin's code
        click.echo(f"could not be mended: {type(error).__name__}: {error}", err=True)
        return finding, ""
    after = examined.again()
    if not quiet:
        click.echo(f"         {did}")
        _show(examined, after)
    return after, did


def _show(examined: Examined, finding: Finding) -> None:
    mark, colour = _MARKS[finding.health]
    name = examined.name.removeprefix(f"{OWN}/")
    lines = textwrap.wrap(f"{name}: {finding.text}", 100, break_long_words=False, break_on_hyphens=False)
    click.echo(f"{click.style(mark, fg=colour)}  {lines[0]}")
    for line in lines[1:]:
        click.echo(f"         {line}")
    if finding.advice and finding.health is not Health.OK:
        can = " (`slime doctor --fix` can)" if finding.fix else ""
        click.echo(f"         -> {finding.advice}{can}")


def _row(examined: Examined, finding: Finding, did: str) -> dict[str, Json]:
    return {
        "check": examined.name,
        "summary": examined.summary,
        "health": finding.health.value,
        "text": finding.text,
        "advice": finding.advice,
        "fixable": finding.fix is not None,
        "fixed": did or None,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
