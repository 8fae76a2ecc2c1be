"""`slime train`: from a run file and flags to a finished run."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import click

from slime_core.catalog import Catalog
from slime_core.cli.main import STOPPED
from slime_core.cli.plugin_options import plugin_options, plugin_set, with_plugin_options
from slime_core.cli.run_options import RunCommand, catalog_of, collect_values, refuse_unused, typed_values
from slime_core.config import (
    Plan,
    RunConfig,
    TakenNames,
    missing_plugins,
    parse_config,
    read_run_file,
    resolve,
    say_lines,
)
from slime_core.errors import CheckpointError, ConfigError, UnknownName, WorkerError
from slime_core.run import Checkpoint, Outcome, RunFolder, list_checkpoints, run, with_own_model
from slime_core.sample import Json
from slime_core.telemetry import make_display, write_report

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def how_options(command: CommandT) -> CommandT:
    """Add the flags of who starts or continues a run that say nothing of what is trained."""
    restarts = click.option(
        "--max-restarts",
        metavar="INT",
        type=click.IntRange(min=0),
        default=0,
        help="Times that a run which lost a worker continues by itself, from its newest checkpoint.",
    )
    plain = click.option("--no-progress", is_flag=True, help="One plain line a rollout instead of the live display.")
    return plain(restarts(command))


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@how_options
@click.pass_context
def train(ctx: click.Context, /, run_file: Path | None, no_progress: bool, max_restarts: int, **flags: object) -> int:
    """Train on your own prompts, as RUN_FILE (TOML or YAML) and flags say; flags win.

    Runs in the folder given by --save (default runs/NAME of the run file) and continues there when called again.

    slime train run.toml --lr 1e-5
    """
    plan = plan_run(ctx, run_file, flags)
    return execute(plan, no_progress, max_restarts)


def plan_run(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> Plan:
    """Resolve a run file and flags."""
    with lines_of(run_file):
        return plan_config(ctx, parse_run(ctx, run_file, flags))


@contextlib.contextmanager
def lines_of(run_file: Path | None) -> Iterator[None]:
    """Say of keys of the run file that are unknown in which line they are."""
    try:
        yield
    except ConfigError as error:
        if run_file is None or (said := say_lines(str(error), run_file)) == str(error):
            raise
        raise ConfigError(said) from None


def parse_run(
    ctx: click.Context, run_file: Path | None, flags: dict[str, object], defaults: Mapping[str, Json] | None = None
) -> RunConfig:
    """The configuration that a run file and flags give; a command may have defaults of its own."""
    installed = catalog_of(ctx, plugin_set(ctx, read_run_file(run_file) if run_file else {}))
    values = {**(defaults or {}), **given_values(ctx, run_file, flags)}
    if run_file is not None:
        values.setdefault("save", f"runs/{run_file.stem}")
    return parse_config(values, installed)


def given_values(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> dict[str, Json]:
    """The keys that a run file and flags give, without defaults."""
    settings: dict[str, Json] = ctx.obj
    installed = catalog_of(ctx, plugin_set(ctx, read_run_file(run_file) if run_file else {}))
    return with_plugin_options(ctx, collect_values(run_file, flags, settings, installed))


def names_taken(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> list[str]:
    """A sentence for each key of the run file, and for each flag, that has another framework's name."""
    values = read_run_file(run_file) if run_file else {}
    names = TakenNames(catalog_of(ctx, plugin_set(ctx, values)))
    return [*names.place(values).notes, *names.place(typed_values(flags)).notes]


def plan_config(ctx: click.Context, config: RunConfig) -> Plan:
    """Resolve a configuration of `parse_run`."""
    settings: dict[str, Json] = ctx.obj
    plan = resolve_in_folder(config, catalog_of(ctx, config.plugins))
    refuse_unused(plan.unused, settings)
    return plan


def resolve_in_folder(config: RunConfig, catalog: Catalog) -> Plan:
    """Resolve a configuration; an unknown name is explained by the plugins that its run folder was made with."""
    config = with_own_model(config)
    if config.missing_model is not None:
        click.echo(
            f"hf_checkpoint = {config.missing_model} is gone; {config.run.hf_checkpoint} serves instead", err=True
        )
    try:
        return resolve(config, catalog)
    except UnknownName as error:
        missing = missing_plugins(_newest_lock(config.run.save / "checkpoints"), catalog)
        if not missing:
            raise
        listed = "\n  ".join(missing)
        raise UnknownName(f"{error}\nThe run in {config.run.save} was made with\n  {listed}") from None


def _newest_lock(checkpoints: Path) -> dict[str, Json]:
    """The plugin lock of the newest checkpoint that can be read."""
    for path in reversed(list_checkpoints(checkpoints)):
        with contextlib.suppress(CheckpointError):
            return Checkpoint(path, 0).state().plugins
    return {}


def execute(plan: Plan, no_progress: bool, max_restarts: int = 0) -> int:
    """Run a plan in its folder and write the report; returns the exit code.

    Args:
        plan: what is run.
        no_progress: a plain line a rollout.
        max_restarts: times that it continues by itself after the loss of a worker.

    Raises:
        WorkerError: a worker was lost once more.
        SlimeError: whatever else ends the run.
    """
    root = plan.config.run.save
    for number in range(1, max_restarts + 1):
        try:
            outcome = _run(plan, no_progress)
            break
        except WorkerError as error:
            click.echo(f"lost a worker: {error}\nrestart {number} of {max_restarts}: {root}", err=True)
    else:
        outcome = _run(plan, no_progress)
    paths = write_report(root)
    click.echo(f"report: {paths.report}")
    for what, path in (("reward curve", paths.curve), ("transcripts before and after", paths.transcripts)):
        if path is not None:
            click.echo(f"{what}: {path}")
    if outcome is Outcome.STOPPED and plan.config.debug.debug_rollout_only:
        click.echo(f"stopped; what was generated is in {root / 'samples'}")
        return STOPPED
    if outcome is Outcome.STOPPED:
        click.echo(f"stopped and saved; continue with: slime resume {root}")
        return STOPPED
    return 0


def _run(plan: Plan, no_progress: bool) -> Outcome:
    root, accept_changed = plan.config.run.save, plan.config.run.accept_changed_settings
    with (
        RunFolder.open(root, plan.config.to_dict(), accept_changed=accept_changed) as folder,
        make_display(progress=not no_progress) as display,
    ):
        return asyncio.run(run(plan, folder, display))
