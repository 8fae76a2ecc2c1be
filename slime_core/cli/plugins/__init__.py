"""`slime plugins …`: what is installed and what it offers; one module a command."""

import click

from slime_core.cli.lazy import Commands, LazyGroup

COMMANDS: Commands = {
    "list": ("slime_core.cli.plugins.list:list_command", "List what is installed."),
    "show": ("slime_core.cli.plugins.show:show", "Show a plugin or a choice: place, settings, isolation, hooks."),
    "schema": ("slime_core.cli.plugins.schema:schema", "Print the JSON Schema of a choice's settings."),
    "check": ("slime_core.cli.plugins.check:check", "Run the contract kit on plugins, without pytest."),
    "new": ("slime_core.cli.plugins.new:new", "Write a new plugin package."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def plugins() -> None:
    """List, show, check and write plugins."""


__all__ = ["COMMANDS", "plugins"]
