"""`slime demo`: the whole of slime-core on two CPU cores, in about two minutes, with nothing downloaded."""

import asyncio
import textwrap
from pathlib import Path

import click

from slime_core.cli.plugin_options import plugin_options, plugin_set
from slime_core.cli.train import execute
from slime_core.run.demo import SIZES, demo_plan, warm_start
from slime_core.telemetry import before_and_after, make_display, prompt_text


@click.command()
@click.option(
    "--task",
    type=click.Choice(sorted(SIZES)),
    default="word",
    show_default=True,
    help="Sums (chain) or word problems (word).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the reinforcement learning.",
)
@click.option("--num-rollout", type=click.IntRange(min=1), help="Rollouts of the run.  [default: word 60, chain 40]")
@click.option("--save", type=click.Path(path_type=Path), help="Run folder.  [default: runs/demo-TASK-SEED]")
@plugin_options
@click.option("--no-progress", is_flag=True, help="One plain line a rollout instead of the live display.")
@click.pass_context
def demo(
    ctx: click.Context, task: str, seed: int, num_rollout: int | None, save: Path | None, no_progress: bool
) -> int:
    """Train a tiny model from nothing and watch its reward rise.

    Builds a model of under 400,000 weights and warms it up on generated solutions (kept in runs/demo-base-TASK), then
    trains it with GRPO and the `math` reward. Killed and called again, it continues.
    """
    plugins = plugin_set(ctx)
    root = save or Path("runs") / f"demo-{task}-{seed}"
    with make_display(progress=not no_progress) as display:
        base = asyncio.run(warm_start(task, root.parent / f"demo-base-{task}", display, plugins))
    code = execute(demo_plan(task, seed, base, root, num_rollout, plugins), no_progress)
    for pair in before_and_after(root / "samples", count=2)[:1]:
        question = prompt_text(pair.before.prompt).partition("user\n")[2].partition("<|im_end|>")[0]
        click.echo(f"\n{question}")
        for row in (pair.before, pair.after):
            click.echo(f"\nafter {row.rollout_id} rollouts:\n{textwrap.indent(row.response, '    ')}")
    return code
