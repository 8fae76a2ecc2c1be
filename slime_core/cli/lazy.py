"""LazyGroup: a group of commands that lists them without importing them, and names the nearest to a misspelt one.

Example:

    @click.group(cls=LazyGroup, known={"list": ("slime_core.cli.plugins.list:list_plugins", "List plugins.")})
    def plugins(): ...
"""

import importlib
from collections.abc import Iterator, Mapping

import click

Commands = Mapping[str, tuple[str, str]]
"""`module:attribute` and one line of help, by name."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        known: its commands, in the order in which they are listed.
    """

    def __init__(self, *args: object, known: Commands, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed on
        self.known = known

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the given order."""
        return [name for name, _ in self.rows()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.known:
            return None
        module, _, name = self.known[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; a misspelt one is told the nearest."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from slime_core.errors import did_you_mean

            known = self.list_commands(ctx)
            advice = self.advice(args[0]) or did_you_mean(args[0], known)
            ctx.fail(f"no command {args[0]!r}.{advice} Commands: {', '.join(known)}.")
        return super().resolve_command(ctx, args)

    def advice(self, name: str) -> str:
        """What to say of a command that is not there, besides the nearest: a sentence after a space, or nothing."""
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text, from what is known without importing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.rows()))

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and one line of help of every command."""
        for name, (_, text) in self.known.items():
            yield name, text
