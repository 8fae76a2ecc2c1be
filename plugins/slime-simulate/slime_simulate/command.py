"""`slime simulate`: how busy each rollout policy keeps a fleet of engines, on a virtual clock."""

import json
from collections.abc import Iterator
from dataclasses import replace

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slime_core.errors import ConfigError
from slime_core.rollout import POLICIES
from slime_core.sample import Json
from slime_simulate import Figures, FleetShape, Lengths, Scenario, simulate

ROUNDS = 8
"""Responses of each slot in a batch, if no batch size is given."""
CUT = 8
"""Mean lengths at which a response is cut."""
STALENESS = 1
"""As in a run."""
GOOD, FAIR = 0.9, 0.6
_COUNT, _SHARE = click.IntRange(min=1), click.FloatRange(min=0.0)


@click.command("simulate", short_help="Compare rollout policies on a virtual clock.")
@click.option("--engines", type=_COUNT, default=64, show_default=True, help="Number of engines.")
@click.option("--slots", type=_COUNT, default=8, show_default=True, help="Responses that an engine decodes at once.")
@click.option("--rollout-policy", type=click.Choice(POLICIES), help="Simulate only this policy.  [default: all]")
@click.option(
    "--max-staleness",
    type=click.IntRange(min=0),
    help="Maximum staleness in weight versions.  [default: 1, as in a run]",
)
@click.option("--partial-rollout", is_flag=True, help="Interrupt responses when the weights change, and continue them.")
@click.option("--rollout-batch-size", type=_COUNT, help="Groups in a step.  [default: 8 responses per slot]")
@click.option("--n-samples-per-prompt", type=_COUNT, default=8, show_default=True, help="Responses in a group.")
@click.option(
    "--mean-length",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    help="Mean tokens of a response; one may stand for many.",
)
@click.option(
    "--sigma", type=_SHARE, default=1.0, show_default=True, help="Standard deviation of the logarithm of lengths."
)
@click.option(
    "--train-time",
    type=_SHARE,
    default=1.0,
    show_default=True,
    help="Time of a training step, relative to decoding a batch with all slots.",
)
@click.option("--steps", type=_COUNT, default=6, show_default=True, help="Number of measured steps.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate_policies(
    engines: int,
    slots: int,
    rollout_policy: str | None,
    max_staleness: int | None,
    partial_rollout: bool,
    rollout_batch_size: int | None,
    n_samples_per_prompt: int,
    mean_length: int,
    sigma: float,
    train_time: float,
    steps: int,
    seed: int,
    as_json: bool,
) -> None:
    """Show how busy engines would be, with a run's scheduler on a virtual clock and simulated engines.

    Lengths are log-normal, and cut at eight times their mean. Prefill, rewards, networks, and differences between
    engines are not simulated.

    \b
    slime simulate --sigma 0.5 --train-time 0.5
    slime simulate --rollout-policy continuous --max-staleness 2
    """  # noqa: D301  # \b keeps click from filling the lines below it
    _refuse_inert(rollout_policy, max_staleness, partial_rollout)
    staleness = STALENESS if max_staleness is None else max_staleness
    base = Scenario(
        rollout_policy=rollout_policy or "",
        partial_rollout=partial_rollout,
        max_staleness=staleness,
        fleet=FleetShape(engines, slots),
        lengths=Lengths(mean_length, sigma, CUT * mean_length),
        batch=rollout_batch_size or -(-engines * slots * ROUNDS // n_samples_per_prompt),
        n_samples_per_prompt=n_samples_per_prompt,
        train_time=train_time,
        steps=steps,
        warm_up=staleness + 2,
        seed=seed,
    )
    found: list[tuple[str, Figures]] = []
    for scenario in [base] if rollout_policy else _compared(base):
        name = scenario.rollout_policy + (", partial" if scenario.partial_rollout else "")
        click.echo(f"simulating {name}", err=True)
        found.append((name, simulate(scenario)))
    if as_json:
        rows: list[Json] = [{"policy": name, **figures.to_dict()} for name, figures in found]
        click.echo(json.dumps({"schema_version": 1, "groups_of_a_step": base.batch, "policies": rows}, indent=2))
    else:
        _show(found, base)


def _compared(base: Scenario) -> Iterator[Scenario]:
    """Every policy; `sync` also with partial rollouts."""
    for policy in POLICIES:
        yield replace(base, rollout_policy=policy)
        if policy == "sync":
            yield replace(base, rollout_policy=policy, partial_rollout=True)


def _refuse_inert(policy: str | None, max_staleness: int | None, partial_rollout: bool) -> None:
    """Refuse an option that the policy ignores.

    Raises:
        ConfigError: names the option, and what to do.
    """
    if partial_rollout and policy is None:
        raise ConfigError(
            "--partial-rollout has no effect here: the comparison runs sync with and without it; choose "
            "--rollout-policy sync or continuous"
        )
    if partial_rollout and policy == "async":
        raise ConfigError("--partial-rollout has no effect here: with async, new weights wait for the end of a rollout")
    if max_staleness is not None and policy in ("sync", "async") and not partial_rollout:
        raise ConfigError(
            f"--max-staleness has no effect here: {policy} is never more than {POLICIES.index(policy)} versions "
            "behind; choose --rollout-policy continuous, or --rollout-policy sync with --partial-rollout"
        )


def _show(found: list[tuple[str, Figures]], base: Scenario) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold cyan")
    table.add_column("policy", style="bold")
    for title in ("utilisation", "step", "versions behind: mean", "most", "length bias"):
        table.add_column(title, justify="right")
    for name, figures in found:
        colour = "green" if figures.utilisation >= GOOD else "yellow" if figures.utilisation >= FAIR else "red"
        table.add_row(
            Text(name),
            Text(f"{figures.utilisation:.1%}", colour),
            f"{figures.step_time:.2f}",
            f"{figures.mean_staleness:.2f}",
            str(figures.max_staleness),
            f"{figures.length_bias:+.1%}",
        )
    console = Console()
    console.print(table)
    samples = base.batch * base.n_samples_per_prompt
    console.print(
        f"\nA step trains {samples} responses. Utilisation is the share of the tokens that all slots could have "
        "decoded in this time. A step's time is relative to decoding a batch with all slots.",
        style="dim",
    )
