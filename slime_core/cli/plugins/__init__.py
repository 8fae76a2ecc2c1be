"""`slime plugins …`: what is installed and what it offers; one module a command."""

import click

from slime_core.cli.lazy import Commands, LazyGroup

COMMANDS: Commands = {
    "list": ("slime_core.cli.plugins.list:list_command", "List what is installed."),
    "new": ("slime_core.cli.plugins.new:new", "Write a new plugin package."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def plugins() -> None:
    """List, show, check and write plugins."""


__all__ = ["COMMANDS", "plugins"]
