"""`slime agent`: commands for agents other than training."""

import click

from slime_core.cli import Commands, LazyGroup

COMMANDS: Commands = {
    "serve": ("slime_agent_openai.commands.fleet:serve", "Train with agents that run elsewhere and ask for work."),
    "work": ("slime_agent_openai.commands.fleet:work", "Run an agent for whoever serves, elsewhere."),
    "show": ("slime_agent_openai.commands.inspect:show", "Show the conversations of a run as text or as a page."),
    "prove": ("slime_agent_openai.commands.inspect:prove", "Show which turns of a model are trained without a fork."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def agent() -> None:
    """Look at agents' conversations, prove a chat template, serve a fleet."""
