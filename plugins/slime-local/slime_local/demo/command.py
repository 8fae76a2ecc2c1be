"""`slime demo`: a complete run on two CPU cores in about two minutes, without downloads.

It writes run files and has `slime sft` and `slime train` run them.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from slime_core.cli import run_cli
from slime_core.errors import ConfigError, printable
from slime_core.outputs import claim_run_folder
from slime_local.demo import pretrained, recipe
from slime_view.transcripts import before_and_after, prompt_text


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--model",
    default="tiny",
    show_default=True,
    metavar="tiny|smollm2|DIR",
    help="A tiny new model, SmolLM2-135M (the extra smollm2), or a directory with a causal LM in HF format.",
)
@click.option(
    "--task",
    type=click.Choice(sorted(recipe.SIZES)),
    default="word",
    show_default=True,
    help="Task of the tiny model: sums (chain) or word problems (word).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the training run.",
)
@click.option("--num-rollout", type=click.IntRange(min=1), help="Number of rollouts.  [default: 40; word 60]")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Run folder.  [default: runs/demo-TASK-SEED, runs/demo-MODEL-SEED]",
)
@click.option("--plugin", metavar="NAME", multiple=True, help="As in slime train. Repeatable.")
@click.option("--no-plugin", metavar="NAME", multiple=True, help="As in slime train. Repeatable.")
@click.option("--no-progress", is_flag=True, help="Print one line per rollout instead of the live display.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF slime train]")
@click.pass_context
def demo(
    ctx: click.Context,
    model: str,
    task: str,
    seed: int,
    num_rollout: int | None,
    save: Path | None,
    plugin: Sequence[str],
    no_plugin: Sequence[str],
    no_progress: bool,
    options: Sequence[str],
) -> int:
    """Train a tiny model from scratch and watch its reward rise.

    Builds a model of under 400,000 weights and warms it up on generated solutions (kept in runs/demo-base-TASK), then
    trains it with GRPO and the `math` reward. Killed and called again, it continues.

    With --model smollm2 or a model directory, it trains that model on short sums, without a warm start.

    Options of `slime train` change how it is trained: --trainer megatron --actor-num-gpus-per-node 2.
    """
    flags = [*(f"--plugin={name}" for name in plugin), *(f"--no-plugin={name}" for name in no_plugin)]
    flags += ["--no-progress"] * no_progress
    if model == "tiny":
        root = save or Path("runs") / f"demo-{task}-{seed}"
        base = root.parent / f"demo-base-{task}"
        for each in (root, base):
            claim_run_folder(f"--save {root}", each)
        run_file = recipe.run_file(task, seed, recipe.warm_model(task, base), root, num_rollout)
        _refuse_unknown(ctx, [str(run_file), *flags, *options])
        if code := _warm_start(task, base, flags):
            return code
    elif ctx.get_parameter_source("task") is ParameterSource.COMMANDLINE:
        raise ConfigError(f"--task {task} has no effect with --model {model}: only the tiny model has tasks")
    else:
        root = save or Path("runs") / f"demo-{Path(model).name}-{seed}"
        claim_run_folder(f"--save {root}", root)
        directory = pretrained.smollm2_base() if model == "smollm2" else Path(model)
        run_file = pretrained.run_file(directory, seed, root, num_rollout)
    if code := run_cli(["train", str(run_file), *flags, *options]):
        return code
    _show_one(root)
    return 0


def _refuse_unknown(ctx: click.Context, arguments: Sequence[str]) -> None:
    group = ctx.parent
    if group is not None and isinstance(group.command, click.Group):
        train = group.command.get_command(group, "train")
        if train is not None:
            train.make_context("train", list(arguments), parent=group)


def _warm_start(task: str, base: Path, flags: Sequence[str]) -> int:
    """Create and warm up the tiny model if it does not exist; returns the exit code."""
    if recipe.warm_model(task, base).is_dir():
        return 0
    click.echo(f"warm start: {task}")
    return run_cli(["sft", str(recipe.warm_start_file(task, base)), *flags])


def _show_one(root: Path) -> None:
    for pair in before_and_after(root / "samples", count=2)[:1]:
        question = prompt_text(pair.before.prompt).rpartition("user\n")[2].partition("<|im_end|>")[0]
        click.echo(f"\n{printable(question)}")
        for row in (pair.before, pair.after):
            click.echo(f"\nafter {row.rollout_id} rollouts:\n{textwrap.indent(printable(row.response), '    ')}")
