"""`slime plugins …`: what is installed and what it offers; one module a command."""

import click

from slime_core.cli.lazy import Commands, LazyGroup

COMMANDS: Commands = {
    "list": ("slime_core.cli.plugins.list:list_plugins", "List what is installed."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def plugins() -> None:
    """List, show, check and write plugins."""


__all__ = ["COMMANDS", "plugins"]
