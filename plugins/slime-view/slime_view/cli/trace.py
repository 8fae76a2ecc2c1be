"""`slime trace`: a run's spans as a file for Perfetto or Chrome, and a summary of its time."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from slime_core.errors import printable
from slime_core.outputs import nofollow, refuse_occupied
from slime_core.telemetry import run_folder_errors
from slime_view.trace import Trace


@click.command(short_help="Write a trace of a run's time for Perfetto.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.  [default: RUN/report/trace.json]",
)
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first rollout.")
@click.option("--last", type=click.IntRange(min=0), help="The last rollout.  [default: the run's last]")
def trace(run: Path, out: Path | None, first: int, last: int | None) -> None:
    """Write the timeline of the run in RUN as a trace, to open in ui.perfetto.dev.

    \b
    slime trace runs/first
    slime trace runs/first --first 100 --last 109 -o trace.json

    Shows the loop (generate, train, publish, evaluate, checkpoint), the trainer's steps, each sample (queue, generate
    with its turns, teacher, rewards) and each group (until trained or dropped). Works while the run is active.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    found = Trace.of(run, first, last)
    path = out or nofollow(run / "report" / "trace.json", 2)
    with run_folder_errors(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.to_dict(), separators=(",", ":")), "utf-8")
    for whose, spent in (("loop", found.loop_s), ("samples, added up", found.samples_s)):
        if spent:
            click.echo(f"{click.style(f'{whose:<17}', bold=True)} {_shares(spent)}")
    click.echo(f"{path}: open it in https://ui.perfetto.dev")


def _shares(spent: Mapping[str, float]) -> str:
    whole, longest_first = sum(spent.values()) or 1.0, sorted(spent, key=lambda name: -spent[name])
    return ", ".join(f"{printable(name)} {spent[name]:.2f} s ({spent[name] / whole:.0%})" for name in longest_first)
