"""`slime reward …`: rewards without a run; one module a command."""

import click

from slime_core.cli import Commands, LazyGroup

COMMANDS: Commands = {
    "try": ("slime_testing.cli.reward.trying:try_command", "Score the samples of a file, without training."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def reward() -> None:
    """Score samples without training."""


__all__ = ["COMMANDS", "reward"]
