"""`slime agent`: commands for agents other than training."""

import click

from slime_core.cli import Commands, LazyGroup

COMMANDS: Commands = {
    "serve": ("slime_agent_openai.commands.fleet:serve", "Train with agents that run on other machines."),
    "work": ("slime_agent_openai.commands.fleet:work", "Run agents on this machine for a run on another machine."),
    "show": ("slime_agent_openai.commands.inspect:show", "Show a run's conversations as text or as an HTML page."),
    "prove": ("slime_agent_openai.commands.inspect:prove", "Show which kinds of turn train without a fork."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def agent() -> None:
    """Show agents' conversations, check a chat template, serve a fleet of workers."""
