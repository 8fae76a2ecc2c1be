"""`slime plugins show NAME`: one plugin, or the choices of one name, as fully as it is known before a run."""

import json
from functools import partial

import click

from slime_core.cli.plugin_options import plugin_options
from slime_core.cli.plugins.facts import (
    HookRow,
    PluginRow,
    RegisteredRow,
    choices_of,
    describe_choice,
    describe_hooks,
    describe_plugin,
)
from slime_core.cli.plugins.find import find_choices, find_plugin, open_catalog


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a plugin, or a choice: where it is, its settings, how its calls are isolated, its hooks in call order.

    \b
    slime plugins show slime-reward-math
    slime plugins show reward/math
    slime plugins show slime-reward-math/math
    slime plugins show ./my_plugin.py
    """  # noqa: D301  # \b keeps click from filling the lines below it
    catalog = open_catalog(ctx, name)
    status = find_plugin(catalog, name)
    plugin = describe_plugin(catalog, status) if status else None
    found = choices_of(catalog, status.plugin) if status else find_choices(catalog, name)
    choices = [describe_choice(each) for each in found]
    hooks = list(describe_hooks(catalog, status.plugin)) if status else []
    if as_json:
        value = {"schema_version": 1, "plugin": plugin, "choices": choices, "hooks": hooks}
        click.echo(json.dumps(value, indent=2))
        return
    blocks = [partial(_show_plugin, plugin)] if plugin else []
    blocks += [partial(_show_choice, choice) for choice in choices]
    blocks += [partial(_show_hook, hook) for hook in hooks]
    for number, show_block in enumerate(blocks):
        if number:
            click.echo()
        show_block()


def _show_plugin(row: PluginRow) -> None:
    click.echo(_title(f"{row['plugin']} {row['version']}".rstrip(), row["summary"]))
    _line("state", click.style(row["state"], fg="green" if row["state"] == "loaded" else "red"))
    if row["detail"]:
        _line("", f"{row['phase']}: {row['detail']}")
    if row["order"]:
        _line("order", str(row["order"]))
    _line("plugin API", row["api"])
    _line("module", f"{row['origin']}  {row['file']}".rstrip())
    _line("requires", ", ".join(row["requires"]))


def _show_choice(row: RegisteredRow) -> None:
    click.echo(_title(f"{row['role']} {row['choice'].rpartition('/')[2]}", row["summary"]))
    _line("choice", f"{row['choice']} {row['version']}".rstrip())
    _line("defined", row["origin"])
    _line("calls run", row["isolation"] or "")
    _line("role", f"{row['stability']}, since {row['added']}")
    for setting in row["settings"]:
        default = "required" if setting["required"] else f"= {json.dumps(setting['default'])}"
        _line("setting", f"{click.style(setting['key'], bold=True)}: {setting['type']} {default}")
        _line("", setting["description"])


def _show_hook(row: HookRow) -> None:
    click.echo(_title(f"hook {row['hook']}", ""))
    _line("defined", row["origin"])
    _line("called", f"{row['position']} of {len(row['order'])}: {', '.join(row['order'])}")
    _line("hook", f"{row['stability']}, since {row['added']}")


def _title(name: str, text: str) -> str:
    return click.style(name, fg="cyan", bold=True) + (f"  {text}" if text else "")


def _line(what: str, text: str) -> None:
    if text:
        click.echo(f"  {click.style(f'{what:10}', dim=True)}  {text}")
