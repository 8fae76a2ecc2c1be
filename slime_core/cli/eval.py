"""`slime eval`: how well does a run's newest checkpoint, or a model, do on the evaluation sets."""

import asyncio
import json
from pathlib import Path

import click

from slime_core.catalog import Catalog
from slime_core.cli.plugin_options import plugin_options, plugin_set, with_plugin_options
from slime_core.cli.resume import run_file_of
from slime_core.cli.run_options import RunCommand, catalog_of, collect_values, refuse_unused
from slime_core.config import parse_config, read_run_file, resolve
from slime_core.errors import CheckpointError, ConfigError
from slime_core.run import RunFolder, model_of, newest_checkpoint
from slime_core.run.evaluation import evaluate_model
from slime_core.sample import Json
from slime_core.telemetry import make_display, run_folder_errors
from slime_core.terminal import printable


@click.command(cls=RunCommand, name="eval")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@plugin_options
@click.option("--no-progress", is_flag=True, help="Plain lines instead of the live display.")
@click.pass_context
def evaluate(ctx: click.Context, /, run: Path | None, no_progress: bool, **flags: object) -> None:
    """Evaluate RUN: a run folder (its newest checkpoint), a run file or a model directory; flags win.

    slime eval runs/first --n-samples-per-eval-prompt 8
    """
    catalog = catalog_of(ctx, plugin_set(ctx, _read(run)))
    values = with_plugin_options(ctx, _values(run, flags, ctx.obj, catalog))
    plan = resolve(parse_config(_for_evaluation(values), catalog), catalog)
    refuse_unused(plan.unused, ctx.obj)
    root = plan.config.run.save
    with RunFolder.open(root, plan.config.to_dict()) as folder, make_display(progress=not no_progress) as display:
        metrics = asyncio.run(evaluate_model(plan, folder, display))
    with run_folder_errors(root / "eval.json", "write"):
        (root / "eval.json").write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    for name, value in sorted(metrics.items()):
        click.echo(f"{printable(name):40} {value:.4f}")
    click.echo(f"written: {root / 'eval.json'}")


def _read(run: Path | None) -> dict[str, Json]:
    """The run file of what is evaluated; a model directory has none."""
    if run is None or (run / "config.json").exists():
        return {}
    return read_run_file(run_file_of(run) if run.is_dir() else run)


def _values(run: Path | None, flags: dict[str, object], settings: dict[str, Json], catalog: Catalog) -> dict[str, Json]:
    """Keys of what is evaluated: it has a folder of its own, so that a run's folder is never touched."""
    if run is not None and (run / "config.json").exists():
        given: dict[str, Json] = {"save": f"runs/{run.resolve().name}-eval", "hf_checkpoint": str(run)}
        return given | collect_values(None, flags, settings, catalog)
    if run is None or not run.is_dir():
        values = collect_values(run, flags, settings, catalog)
        trained = values.get("save", f"runs/{run.stem if run else 'model'}")
        return values | {"save": str(flags["save"] or f"{trained}-eval")}
    values = collect_values(run_file_of(run), flags, settings, catalog)
    checkpoint = newest_checkpoint(run / "checkpoints", lambda text: click.echo(printable(text), err=True))
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint yet")
    model = flags["hf_checkpoint"] or model_of(checkpoint.path)
    own = flags["save"] or f"{run}-eval/{checkpoint.path.name}"
    return values | {"hf_checkpoint": str(model), "save": str(own)}


_TRAINING_ONLY = (
    *("load_debug_rollout_data", "num_epoch", "rollout_max_prompt_len"),
    *("save_hf", "save_debug_train_data"),
)


def _for_evaluation(values: dict[str, Json]) -> dict[str, Json]:
    """The same keys without what only training needs; nothing is drawn from a training set, so none is read."""
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
