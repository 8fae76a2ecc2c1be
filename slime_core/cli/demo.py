"""`slime demo`: the whole of slime-core on two CPU cores, in about two minutes, with nothing downloaded."""

import asyncio
import textwrap
from pathlib import Path

import click
from click.core import ParameterSource

from slime_core.cli.plugin_options import plugin_options, plugin_set
from slime_core.cli.train import execute
from slime_core.config import Plan
from slime_core.errors import ConfigError
from slime_core.roles import PluginSet
from slime_core.run.demo import SIZES, demo_plan, warm_start
from slime_core.run.pretrained_demo import pretrained_plan, smollm2_base
from slime_core.telemetry import before_and_after, make_display, prompt_text


@click.command()
@click.option(
    "--model",
    default="tiny",
    show_default=True,
    metavar="tiny|smollm2|DIR",
    help="A model made from nothing, SmolLM2-135M (the extra smollm2), or any causal LM in HF format.",
)
@click.option(
    "--task",
    type=click.Choice(sorted(SIZES)),
    default="word",
    show_default=True,
    help="Of the tiny model: sums (chain) or word problems (word).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the reinforcement learning.",
)
@click.option("--num-rollout", type=click.IntRange(min=1), help="Rollouts of the run.  [default: 40; word 60]")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Run folder.  [default: runs/demo-TASK-SEED, runs/demo-MODEL-SEED]",
)
@plugin_options
@click.option("--no-progress", is_flag=True, help="One plain line a rollout instead of the live display.")
@click.pass_context
def demo(
    ctx: click.Context,
    model: str,
    task: str,
    seed: int,
    num_rollout: int | None,
    save: Path | None,
    no_progress: bool,
) -> int:
    """Train a tiny model from nothing and watch its reward rise.

    Builds a model of under 400,000 weights and warms it up on generated solutions (kept in runs/demo-base-TASK), then
    trains it with GRPO and the `math` reward. Killed and called again, it continues.

    With --model smollm2, or a model directory of yours, it trains that one on short sums instead, without a warm start.
    """
    plugins = plugin_set(ctx)
    if model == "tiny":
        plan = _tiny(task, seed, num_rollout, save, plugins, no_progress)
    elif ctx.get_parameter_source("task") is ParameterSource.COMMANDLINE:
        raise ConfigError(f"--task {task} has no effect here: it is the tiny model's, and --model is {model}")
    else:
        plan = _pretrained(model, seed, num_rollout, save, plugins, no_progress)
    code = execute(plan, no_progress)
    for pair in before_and_after(plan.config.run.save / "samples", count=2)[:1]:
        question = prompt_text(pair.before.prompt).rpartition("user\n")[2].partition("<|im_end|>")[0]
        click.echo(f"\n{question}")
        for row in (pair.before, pair.after):
            click.echo(f"\nafter {row.rollout_id} rollouts:\n{textwrap.indent(row.response, '    ')}")
    return code


def _tiny(
    task: str, seed: int, num_rollout: int | None, save: Path | None, plugins: PluginSet, no_progress: bool
) -> Plan:
    root = save or Path("runs") / f"demo-{task}-{seed}"
    with make_display(progress=not no_progress) as display:
        base = asyncio.run(warm_start(task, root.parent / f"demo-base-{task}", display, plugins))
    return demo_plan(task, seed, base, root, num_rollout, plugins)


def _pretrained(
    model: str, seed: int, num_rollout: int | None, save: Path | None, plugins: PluginSet, no_progress: bool
) -> Plan:
    base = Path(model)
    if model == "smollm2":
        with make_display(progress=not no_progress) as display:
            base = asyncio.run(smollm2_base(display))
    root = save or Path("runs") / f"demo-{Path(model).name}-{seed}"
    return pretrained_plan(base, seed, root, num_rollout, plugins)
