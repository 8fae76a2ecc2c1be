"""The `slime` command: finds a subcommand, runs it, and turns an error into one message and an exit code.

Help lists subcommands without importing them. Output goes through streams that survive a closed terminal or a full
disk.
"""

import errno
import gc
import importlib
import io
import os
import select
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TextIO

import click

from slime_core import __version__
from slime_core.errors import (
    ConfigError,
    DataError,
    ModelError,
    PluginError,
    RunFolderError,
    SlimeError,
    UnknownName,
    did_you_mean,
    printable,
    shortened,
)
from slime_core.secrets import redact_output, redacted_output

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


# LazyGroup: a group of commands that lists them without importing them, and names the nearest to a misspelt one.

Commands = Mapping[str, tuple[str, str]]
"""`module:attribute` and one line of help, by name."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        known: its commands, in the order in which they are listed.
        prefix: prefix of entry points that add commands: `plugins.` of `slime plugins`. None: no package can add one.
    """

    def __init__(self, *args: object, known: Commands, prefix: str | None = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed on
        self.known, self._prefix = known, prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the given order."""
        return [name for name, _ in self._rows()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name in self.known:
            module, _, name = self.known[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name)
            return command
        entries = self._foreign().get(cmd_name)
        return _load(*entries) if entries else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. The error about an unknown one names the nearest, or the first-party package that has it."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from slime_core.catalog import install_advice, package_of_command

            known = self.list_commands(ctx)
            dist = "" if self._prefix is None else package_of_command(f"{self._prefix}{args[0]}")
            advice = f" It comes with {dist}. {install_advice(dist)}." if dist else did_you_mean(args[0], known)
            ctx.fail(f"no command {args[0]!r}.{advice} Commands: {', '.join(known)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text, from what is known without importing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from ((name, text) for name, (_, text) in self.known.items())
        if entries := sorted(self._foreign().items()):
            from slime_core.catalog import help_line

            yield from ((name, help_line(_package(entry), entry.name)) for name, (entry, *_) in entries)

    def _foreign(self) -> dict[str, list[EntryPoint]]:
        if (prefix := self._prefix) is None:
            return {}
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group="slime.commands"):
            name = entry.name.removeprefix(prefix)
            if entry.name.startswith(prefix) and name not in self.known and "." not in name:
                found.setdefault(name, []).append(entry)
        return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown package"


def _load(entry: EntryPoint, *others: EntryPoint) -> click.Command:
    if others:
        packages = " and ".join(sorted(map(_package, (entry, *others))))
        raise PluginError(f"command {entry.name!r} is offered by {packages}: uninstall all of them but one")
    where = f"command {entry.name!r} of {_package(entry)} ({entry.value})"
    try:
        command: object = entry.load()
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise PluginError(f"{where} is a {type(command).__name__}; expected a click.Command")
    return command


# Standard streams that never raise: a closed terminal, a full disk or a narrow encoding must not end a command.


def protect_output() -> None:
    """Drop what standard output and standard error cannot take; escape what their encoding cannot print."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Without this, the next file that the run opens gets the number, and what is printed lands in it.
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    sys.stdout, sys.stderr = _protected(sys.stdout, 1), _protected(sys.stderr, 2)


def _protected(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is not None:  # None: it was closed when Python started
        try:
            descriptor = stream.fileno()
        except OSError:
            return stream  # a buffer in memory
        with suppress(OSError):
            stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Sink(descriptor, "w", closefd=False)),
        stream.encoding if stream else None,
        "backslashreplace",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


class _Sink(io.FileIO):
    """Accepts all that is written, so that no layer above fails, not even the last flush as Python ends."""

    _failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        size = memoryview(data).nbytes
        try:
            while (written := super().write(data)) is None:  # another process made the terminal non-blocking
                select.select([], [self], [])
        except OSError as error:
            self._report(error)
            return size
        return written

    def _report(self, error: OSError) -> None:
        if not self._failed and self.fileno() == 1 and error.errno != errno.EPIPE:  # `| head` has read enough
            with suppress(OSError):
                os.write(2, f"warning: standard output is lost, it cannot be written: {error.strerror}\n".encode())
        self._failed = True


# `slime`: finds the command, runs it, turns errors into one message and an exit code.

ERROR, BAD_INPUT, STOPPED, INTERRUPTED = 1, 2, 75, 130
EXIT_S = 10.0
"""Seconds that threads may take to end when a command is done."""
_WARNING = click.style("warning", fg="yellow", bold=True)
_INPUT_ERRORS = (ConfigError, UnknownName, DataError, ModelError, PluginError, RunFolderError)

COMMANDS: Commands = {
    "train": ("slime_core.cli.train:train", "Train on your own prompts."),
    "resume": ("slime_core.cli.train:resume", "Continue a run from its newest checkpoint."),
    "eval": ("slime_core.cli.train:evaluate", "Evaluate a run's newest checkpoint, or a model."),
    "plan": ("slime_core.cli.plan:plan", "Show what a run would use, without starting anything."),
    "plugins": ("slime_core.cli.plugins:plugins", "List, show, check and write plugins."),
}


@click.group(
    cls=LazyGroup,
    known=COMMANDS,
    prefix="",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="slime-core")
def cli() -> None:
    """Post-train language models with RL; every part is a plugin.

    Start with `slime demo`. `slime train --help all` lists every key of a run.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    gc.disable()  # until the command is imported: looking for cycles among modules takes a tenth of a short command
    protect_output()
    redact_output()  # also in tracebacks that Python prints
    code = run_cli(sys.argv[1:] if arguments is None else arguments)
    threading.Thread(target=_end, args=(code,), name="exit", daemon=True).start()
    sys.exit(code)


def _end(code: int) -> None:
    # Python waits for every thread that a plugin has left running.
    time.sleep(EXIT_S)
    left = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    names = f": {', '.join(left)} still running" if left else ""
    click.echo(f"{_WARNING}: finished, but did not exit within {EXIT_S:g} s{names}", err=True)
    os._exit(code)


def run_cli(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    with redacted_output():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest: click.echo(f"{_WARNING}: {printable(str(message))}", err=True)
            code = cli.main(list(arguments), prog_name="slime", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(printable(shown.getvalue()), nl=False, err=True)
        return error.exit_code
    except SlimeError as error:
        text = "\n".join(map(shortened, str(error).split("\n")))
        click.echo(f"{click.style('error', fg='red', bold=True)}: {printable(text)}", err=True)
        return BAD_INPUT if isinstance(error, _INPUT_ERRORS) else ERROR
    except (KeyboardInterrupt, click.Abort, _cancelled()) as error:
        click.echo(printable(f"stopped {error.__cause__ or error}".rstrip()), err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _cancelled() -> type[BaseException]:
    # asyncio would be a quarter of what `--help` imports.
    from asyncio import CancelledError

    return CancelledError
