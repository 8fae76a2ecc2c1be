"""`slime eval`: how well does a run's newest checkpoint, or a model, do on the evaluation sets."""

import asyncio
import json
from pathlib import Path

import click

from slime_core.catalog import Catalog
from slime_core.cli.run_options import RunCommand, collect_values, refuse_unused
from slime_core.config import parse_config, resolve
from slime_core.errors import CheckpointError
from slime_core.run import RunFolder, newest_checkpoint
from slime_core.run.evaluation import evaluate_model
from slime_core.sample import Json
from slime_core.telemetry import make_display


@click.command(cls=RunCommand, name="eval")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--no-progress", is_flag=True, help="Plain lines instead of the live display.")
@click.pass_context
def evaluate(ctx: click.Context, /, run: Path | None, no_progress: bool, **flags: object) -> None:
    """Evaluate RUN: a run folder (its newest checkpoint) or a run file (its hf_checkpoint); flags win.

    slime eval runs/first --n-samples-per-eval-prompt 8
    """
    values = _for_evaluation(_values(run, flags, ctx.obj))
    plan = resolve(parse_config(values), Catalog.discover())
    refuse_unused(plan.unused, ctx.obj)
    root = plan.config.run.save
    with RunFolder.open(root, plan.config.to_dict()) as folder, make_display(progress=not no_progress) as display:
        metrics = asyncio.run(evaluate_model(plan, folder, display))
    (root / "eval.json").write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    for name, value in sorted(metrics.items()):
        click.echo(f"{name:40} {value:.4f}")
    click.echo(f"written: {root / 'eval.json'}")


def _values(run: Path | None, flags: dict[str, object], settings: dict[str, Json]) -> dict[str, Json]:
    """Keys of the evaluation: it has a folder of its own, so that a run's folder is never touched."""
    is_folder = run is not None and run.is_dir()
    values = collect_values(run / "run.toml" if run and is_folder else run, flags, settings)
    if run and is_folder:
        checkpoint = newest_checkpoint(run / "checkpoints", lambda text: click.echo(text, err=True))
        if checkpoint is None:
            raise CheckpointError(f"{run} has no checkpoint yet")
        values["hf_checkpoint"] = flags["hf_checkpoint"] or str(checkpoint.path / "hf")  # type: ignore[assignment]
        values["save"] = flags["save"] or f"{run}-eval/{checkpoint.path.name}"  # type: ignore[assignment]
    values.setdefault("save", f"runs/{run.stem if run else 'model'}-eval")
    # What a run must say and an evaluation need not.
    values = {**values, "eval_interval": 1, "num_rollout": 1, "num_epoch": None}
    sets = values.get("eval_prompt_data")
    if "prompt_data" not in values and isinstance(sets, dict) and sets:
        values["prompt_data"] = next(iter(sets.values()))
        values["input_key"] = values.get("eval_input_key") or values.get("input_key") or "input"
    return values
