"""`slime plugins list`: what is installed, in which order, and on request what it offers.

Without `--load` and `--role` it imports no plugin and no role.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TypedDict

import click

from slime_core.catalog import PluginState, PluginStatus, installed_statuses
from slime_core.cli.plugins import plugin_options, plugin_set
from slime_core.roles import PluginSet

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
    rows = _loaded_rows(plugins, role) if role is not None or load else _listed_rows(installed_statuses(plugins))
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


def _listed_rows(statuses: Sequence[PluginStatus]) -> list[ListedRow]:
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


def _loaded_rows(plugins: PluginSet, role: str | None) -> list[ListedRow]:
    from slime_core.cli.plugin_facts import declared_api, describe_hooks, quiet_catalog
    from slime_core.roles import SPECS

    catalog = quiet_catalog(plugins)
    roles = list(SPECS) if role is None else [role.replace("-", "_")]
    offered = [(name, each) for name in roles for each in catalog.choices(name).values()]
    rows = _listed_rows(catalog.statuses)
    seen: set[str] = set()
    for row, status in zip(rows, catalog.statuses, strict=True):
        row["choices"], row["hooks"], row["api"] = [], [], declared_api(status)
        if status.state is PluginState.LOADED and status.plugin not in seen:  # its entry points share its choices
            seen.add(status.plugin)
            row["choices"] = [
                OfferedRow(role=name, choice=each.qualified, summary=each.spec.summary, origin=each.origin)
                for name, each in offered
                if each.plugin == status.plugin
            ]
            hooks = describe_hooks(catalog, status.plugin)
            row["hooks"] = [{"hook": each["hook"], "origin": each["origin"]} for each in hooks]
    return rows


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
