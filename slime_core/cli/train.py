"""The commands `slime train`, `resume` and `eval`: run, continue or evaluate a run.

`train` starts from a run file and flags. `resume` and `eval` use the newest checkpoint of a run folder; `eval` also
takes a model.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from slime_core.cli.main import STOPPED
from slime_core.cli.plugins import plugin_options
from slime_core.cli.run_options import (
    RunCommand,
    plan_config,
    plan_run,
    run_input,
)
from slime_core.config import Plan, canonical, parse_config
from slime_core.errors import CheckpointError, ConfigError, RunFolderError, WorkerError, printable
from slime_core.outputs import nofollow
from slime_core.run import Outcome, RunFolder, model_of, newest_checkpoint, run
from slime_core.run.session import evaluate_model
from slime_core.sample import Json
from slime_core.telemetry import make_display, run_folder_errors
from slime_core.telemetry.recording import write_run_report

# `slime train`: from a run file and flags to a finished run.

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def restart_options(command: CommandT) -> CommandT:
    """Add --max-restarts and --no-progress."""
    restarts = click.option(
        "--max-restarts",
        metavar="N",
        type=click.IntRange(min=0),
        default=0,
        help="How often to resume automatically after losing a worker.",
    )
    plain = click.option("--no-progress", is_flag=True, help="One plain line a rollout instead of the live display.")
    return plain(restarts(command))


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@restart_options
@click.pass_context
def train(ctx: click.Context, run_file: Path | None, no_progress: bool, max_restarts: int) -> int:
    """Train on your own prompts, as RUN_FILE and flags say; flags win.

    Runs in the folder given by --save (default runs/NAME of the run file) and continues there when called again.

    slime train run.toml --lr 1e-5
    """
    return execute(plan_run(ctx, run_file), no_progress, max_restarts)


def execute(plan: Plan, no_progress: bool, max_restarts: int = 0) -> int:
    """Run a plan in its folder and write the report; returns the exit code.

    After the loss of a worker, the run continues by itself at most `max_restarts` times.
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
    for what, path in write_run_report(root):
        click.echo(f"{what}: {path}")
    if outcome is Outcome.STOPPED and plan.config.debug.debug_rollout_only:
        click.echo(f"stopped; what was generated is in {root / 'samples'}")
        return STOPPED
    if outcome is Outcome.STOPPED:
        click.echo(f"stopped and saved; continue with: slime resume {root}")
        return STOPPED
    return 0


def _run(plan: Plan, no_progress: bool) -> Outcome:
    with (
        RunFolder.open(plan.config.run.save, plan.config.to_dict()) as folder,
        make_display(progress=not no_progress) as display,
    ):
        return asyncio.run(run(plan, folder, display))


# `slime resume`: continue a run from its newest checkpoint, with the config that it started with.


@click.command(cls=RunCommand)
@click.argument("run_dir", type=click.Path(path_type=Path))
@plugin_options
@restart_options
@click.pass_context
def resume(ctx: click.Context, run_dir: Path, no_progress: bool, max_restarts: int) -> int:
    """Continue the run in RUN_DIR, as its run.toml and flags say; flags win.

    A changed setting that affects results needs --accept-changed-settings.

    slime resume runs/first --num-rollout 300
    """
    given = run_input(ctx, run_file_of(run_dir))
    if "save" in given.flags:
        raise ConfigError("--save has no effect here: a run continues in its own folder; leave it out")
    values: dict[str, Json] = {**given.file, "save": str(run_dir)}
    if "num_rollout" in given.flags:
        values.pop("num_epoch", None)
    plan = plan_config(ctx, parse_config(values, given.catalog, given.flags), given.catalog)
    return execute(plan, no_progress, max_restarts)


def run_file_of(run_dir: Path) -> Path:
    """The run file that a run folder keeps. Raises RunFolderError: it is not a run folder."""
    for name in ("run.toml", "checkpoints"):
        if not (run_dir / name).exists():
            raise RunFolderError(f"{run_dir} is not a run folder: it has no {name}. Give the folder named by --save.")
    return nofollow(run_dir / "run.toml")


# `slime eval`: how well does a run's newest checkpoint, or a model, do on the evaluation sets.


@click.command(cls=RunCommand, name="eval")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@plugin_options
@click.option("--no-progress", is_flag=True, help="Plain lines instead of the live display.")
@click.pass_context
def evaluate(ctx: click.Context, run: Path | None, no_progress: bool) -> None:
    """Evaluate RUN: a run folder (its newest checkpoint), a run file or a model directory; flags win.

    slime eval runs/first --n-samples-per-eval-prompt 8
    """
    is_model = run is not None and (run / "config.json").exists()
    run_file = None if is_model else run_file_of(run) if run is not None and run.is_dir() else run
    given = run_input(ctx, run_file)
    named = {key: given.flags[key] for key in ("save", "hf_checkpoint") if given.flags.get(key)}
    values = canonical([given.file, given.flags], given.catalog).required()
    values |= _place_of(run, given.file, is_model=is_model) | named
    plan = plan_config(ctx, parse_config(_for_evaluation(values), given.catalog), given.catalog)
    root = plan.config.run.save
    with RunFolder.open(root, plan.config.to_dict()) as folder, make_display(progress=not no_progress) as display:
        metrics = asyncio.run(evaluate_model(plan, folder, display))
    with run_folder_errors(root / "eval.json", "write"):
        (root / "eval.json").write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    for name, value in sorted(metrics.items()):
        click.echo(f"{printable(name):40} {value:.4f}")
    click.echo(f"written: {root / 'eval.json'}")


def _place_of(run: Path | None, file: Mapping[str, Json], *, is_model: bool) -> dict[str, Json]:
    if run is not None and is_model:
        return {"save": f"runs/{run.resolve().name}-eval", "hf_checkpoint": str(run)}
    if run is None or not run.is_dir():
        trained = file.get("save", f"runs/{run.stem if run else 'model'}")
        return {"save": f"{trained}-eval"}
    checkpoint = newest_checkpoint(run / "checkpoints", lambda text: click.echo(printable(text), err=True))
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint yet")
    return {"save": f"{run}-eval/{checkpoint.path.name}", "hf_checkpoint": str(model_of(checkpoint.path))}


_TRAINING_ONLY = (
    *("load_debug_rollout_data", "num_epoch", "rollout_max_prompt_len"),
    *("save_hf", "save_debug_train_data"),
)


def _for_evaluation(values: dict[str, Json]) -> dict[str, Json]:
    sets = values.get("eval_prompt_data")
    if not sets or not isinstance(sets, dict):
        raise ConfigError("nothing to evaluate on: give --eval-prompt-data NAME PATH")
    kept = {key: value for key, value in values.items() if key not in _TRAINING_ONLY}
    for key in ("input_key", "label_key"):
        if (own := kept.pop(f"eval_{key}", None)) is not None:
            kept[key] = own
    first = next(iter(sets.values()))
    kept["prompt_data"] = first.get("path") if isinstance(first, dict) else first
    kept["data_source"], kept["tracker"] = {"use": "prompts"}, {"use": []}
    kept["eval_interval"] = kept["num_rollout"] = 1
    kept["debug_rollout_only"] = kept["debug_train_only"] = False
    return kept
