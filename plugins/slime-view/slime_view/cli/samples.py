"""`slime samples`: a run's samples, as a table or as JSON lines, also while it runs."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from slime_core.errors import RunFolderError, last_of, one_line
from slime_view.samples import SampleRow
from slime_view.samples.shard import Kind, Shard, list_shards
from slime_view.transcripts import prompt_text

PROMPT, RESPONSE = 32, 60
"""Maximum characters shown."""
_MARKERS = re.compile(r"<\|[^|<>]*\|>\s*(?:system|user|assistant)?\s*")
"""Markers that chat templates put around a message; the question precedes the last one."""


@click.command(short_help="Show what a run generated.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rollout", type=click.IntRange(min=0), help="Number of the rollout.  [default: the newest]")
@click.option("--eval", "evaluation", type=click.IntRange(min=0), help="Evaluation after this many rollouts instead.")
@click.option("--all", "everything", is_flag=True, help="All rollouts, oldest first.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one sample per line.")
def samples(
    run: Path, rollout: int | None, evaluation: int | None, everything: bool, limit: int | None, as_json: bool
) -> None:
    """Show the samples of a rollout of the run folder RUN, including dropped groups.

    \b
    slime samples runs/first
    slime samples runs/first --all --json | jq 'select(.reward == 1) | .response'
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if sum((rollout is not None, evaluation is not None, everything)) > 1:
        raise click.UsageError("--rollout, --eval and --all exclude each other: give one")
    kind = Kind.ROLLOUT if evaluation is None else Kind.EVAL
    paths = _chosen(run, kind, rollout if evaluation is None else evaluation)
    rows = islice((row for path in (paths if everything else paths[-1:]) for row in Shard(path).rows()), limit)
    for line in map(_json, rows) if as_json else _table(rows):
        click.echo(line)


def _chosen(run: Path, kind: Kind, number: int | None) -> list[Path]:
    paths = list_shards(run / "samples", kind)
    if not paths:
        raise RunFolderError(
            f"{run / 'samples'} holds no {kind.value} yet: its file is written when it ends. "
            "RUN is the folder named by --save."
        )
    if number is None:
        return paths
    found = [path for path in paths if path.name == f"{kind.value}_{number:06d}.parquet"]
    if not found:
        there = f"{kind.value} {Shard(paths[0]).rollout_id} to {Shard(paths[-1]).rollout_id}"
        raise RunFolderError(f"{run / 'samples'} holds no {kind.value} {number}; it holds {there}")
    return found


def _json(row: SampleRow) -> str:
    return json.dumps(row.to_dict())


def _table(rows: Iterator[SampleRow]) -> Iterator[str]:
    before: tuple[int, str] | None = None
    for row in rows:
        name = row.group or row.source
        if (row.rollout_id, name) != before:
            before = (row.rollout_id, name)
            heading = f"{row.rollout_id:4}  {click.style(last_of(name, RESPONSE), bold=True)}"
            dropped = (
                "" if row.drop_reason is None else click.style(f"  dropped: {one_line(row.drop_reason)}", fg="yellow")
            )
            question = _MARKERS.sub(" ", prompt_text(row.prompt)).strip()
            asked = click.style(last_of(question, PROMPT), fg="cyan")
            label = "" if row.label is None else f"  label {last_of(str(row.label), PROMPT)}"
            yield f"{heading}  {asked}{label}{dropped}"
        yield f"{row.index:8}  {_reward(row)}  {row.response_length:6} tokens  {_ending(row)}{_response(row)}"


def _reward(row: SampleRow) -> str:
    if row.reward is None:
        return click.style(f"{'-':>8}", fg="red")
    if isinstance(row.reward, float | int):
        return click.style(f"{row.reward:8.4f}", fg="green" if row.reward > 0 else None)
    return "  ".join(f"{one_line(name)}={value:.4g}" for name, value in row.reward.items())


def _ending(row: SampleRow) -> str:
    status = f"{row.status} ({row.failure_reason})" if row.failure_reason else row.status
    notes = [] if row.status == "completed" else [status]
    notes += ["not trained on"] if row.remove_sample else []
    return click.style(f"{one_line(', '.join(notes))}  ", fg="yellow") if notes else ""


def _response(row: SampleRow) -> str:
    return click.style(last_of(row.response, RESPONSE), dim=True)
