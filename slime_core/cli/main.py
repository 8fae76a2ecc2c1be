"""`slime`: finds the command, runs it, turns errors into one message and an exit code."""

import io
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TextIO

import click

from slime_core import __version__
from slime_core.cli.lazy import Commands, LazyGroup
from slime_core.cli.sources import help_line
from slime_core.cli.streams import protect_output
from slime_core.errors import (
    ConfigError,
    DataError,
    ModelError,
    PluginError,
    RunFolderError,
    SlimeError,
    UnknownName,
    shortened,
)
from slime_core.secrets import redact_output, redacted_output
from slime_core.terminal import printable

ERROR, BAD_INPUT, STOPPED, INTERRUPTED = 1, 2, 75, 130
EXIT_S = 10.0
"""Seconds that threads may take to end when a command is done."""
_WARNING = click.style("warning", fg="yellow", bold=True)
_INPUT_ERRORS = (ConfigError, UnknownName, DataError, ModelError, PluginError, RunFolderError)

COMMANDS: Commands = {
    "train": ("slime_core.cli.train:train", "Train on your own prompts."),
    "sft": ("slime_core.cli.sft:sft", "Finetune on given responses."),
    "resume": ("slime_core.cli.resume:resume", "Continue a run from its newest checkpoint."),
    "eval": ("slime_core.cli.eval:evaluate", "Evaluate a run's newest checkpoint, or a model."),
    "generate": ("slime_core.cli.generate:generate", "Generate with a model, or a run's newest checkpoint."),
    "checkpoints": ("slime_core.cli.checkpoints:checkpoints", "List, verify and prune a run's checkpoints."),
    "ledger": ("slime_core.cli.ledger:ledger", "Show what became of a run's groups."),
    "plan": ("slime_core.cli.plan:plan", "Show what a run would use, without starting anything."),
    "samples": ("slime_core.cli.samples:samples", "Show what a run generated."),
    "why": ("slime_core.cli.why:why", "Tell a sample's life: drawn, generated, scored, trained."),
    "diff": ("slime_core.cli.diff:diff", "Compare two runs: settings, metrics, prompts."),
    "trace": ("slime_core.cli.trace:trace", "Write what a run did when, for Perfetto."),
    "simulate": ("slime_core.cli.simulate:simulate_policies", "Compare rollout policies on a virtual clock."),
    "reward": ("slime_core.cli.reward:reward", "Score samples without training."),
    "plugins": ("slime_core.cli.plugins:plugins", "List, show, check and write plugins."),
    "doctor": ("slime_core.cli.doctor:doctor", "Look for what usually goes wrong, and what to type."),
}


class Slime(LazyGroup):
    """Our commands, then other packages', by name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        found = super().get_command(ctx, cmd_name)
        if found is None and (entries := _foreign().get(cmd_name)):
            return _load(entries)
        return found

    def advice(self, name: str) -> str:
        """Which package of ours adds the command."""
        from slime_core.catalog import command_brought_by, how_to_install

        dist = command_brought_by(name)
        return f" It comes with {dist}. {how_to_install(dist)}." if dist else ""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and one line of help of every command."""
        yield from super().rows()
        for name, (entry, *_) in sorted(_foreign().items()):
            yield name, help_line(entry) or f"from {entry.module}"


def _foreign() -> dict[str, list[EntryPoint]]:
    """Other packages' commands by name; a name that two packages take has two entries."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group="slime.commands"):
        if entry.name not in COMMANDS:
            found.setdefault(entry.name, {}).setdefault(_package(entry), entry)
    return {name: list(entries.values()) for name, entries in found.items()}


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown package"


def _load(entries: Sequence[EntryPoint]) -> click.Command:
    entry, *others = entries
    if others:
        packages = " and ".join(sorted(map(_package, entries)))
        raise PluginError(f"command {entry.name!r} is offered by {packages}: uninstall all of them but one")
    where = f"command {entry.name!r} of {_package(entry)} ({entry.value})"
    try:
        command: object = entry.load()
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise PluginError(f"{where} is a {type(command).__name__}; expected a click.Command")
    return command


@click.group(
    cls=Slime,
    known=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="slime-core")
def cli() -> None:
    """Post-train language models with RL; every part is a plugin.

    Start with `slime demo`. `slime train --help` lists every key of a run.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    protect_output()
    redact_output()  # also of what Python itself says about an error of ours
    code = run_cli(sys.argv[1:] if arguments is None else arguments)
    threading.Thread(target=_end, args=(code,), name="exit", daemon=True).start()
    sys.exit(code)


def _end(code: int) -> None:
    """End the process if it does not end by itself: Python waits for every thread that a plugin has left running."""
    time.sleep(EXIT_S)
    left = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    names = f": {', '.join(left)} still running" if left else ""
    click.echo(f"{_WARNING}: done, and not ended in {EXIT_S:g} s{names}", err=True)
    os._exit(code)


def run_cli(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    with redacted_output():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = cli.main(list(arguments), prog_name="slime", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(printable(shown.getvalue()), nl=False, err=True)
        return error.exit_code
    except _INPUT_ERRORS as error:
        _complain(error)
        return BAD_INPUT
    except SlimeError as error:
        _complain(error)
        return ERROR
    except (KeyboardInterrupt, click.Abort, _cancelled()) as error:
        click.echo(printable(f"stopped {error.__cause__ or error}".rstrip()), err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _cancelled() -> type[BaseException]:
    """What ends a command whose loop was stopped; asyncio is a quarter of what `--help` and lists would import."""
    from asyncio import CancelledError

    return CancelledError


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without the place in the source that gave it."""
    click.echo(f"{_WARNING}: {printable(str(message))}", err=True)


def _complain(error: SlimeError) -> None:
    text = "\n".join(map(shortened, str(error).split("\n")))
    click.echo(f"{click.style('error', fg='red', bold=True)}: {printable(text)}", err=True)
