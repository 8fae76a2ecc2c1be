"""`slime-grade run`: grade a file of answers.

Example:

    slime-grade run answers.jsonl --reward math --out graded.jsonl
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from slime_core.errors import printable
from slime_core.outputs import refuse_occupied
from slime_core.sample import Json
from slime_reward_math.cli.grading import grading_of, parse_settings, reward_names
from slime_reward_math.cli.rows import Graded, read_rows

MOST_REASONS = 5
"""Reasons for having no score that a summary names, the commonest first."""
COLOURS = {"correct": "green", "wrong": "red", "undecided": "yellow", "timeout": "magenta"}
"""Of the verdicts."""


@click.command()
@click.argument("answers", metavar="IN.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reward", type=click.Choice(reward_names()), default="math", show_default=True, help="How to grade.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the verdicts.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the reward; may be repeated.")
@click.option("--strict-slime", is_flag=True, help="Repeat slime's own verdicts; the same as --set strict_slime=true.")
@click.option("--symbolic", is_flag=True, help="Let sympy decide what is undecided, in child processes.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(
    answers: Path,
    reward: str,
    out: Path | None,
    given: tuple[str, ...],
    strict_slime: bool,
    symbolic: bool,
    as_json: bool,
) -> None:
    """Grade each line of IN.jsonl: an object with gold and response; id, kind, choices are optional.

    With kind "equiv" gold and response are two bare answers, with kind "mcq" the gold is a letter. Each line of the
    output has id, verdict, score, extracted, reason and milliseconds; without --out the verdicts themselves are not
    written.
    """
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    console = Console(stderr=True)
    rows = list(read_rows(answers))
    settings = parse_settings(given) | ({"strict_slime": True} if strict_slime else {})
    grading = grading_of(reward, settings, symbolic)
    shown = track(rows, "grading", console=console, disable=not console.is_terminal, transient=True)
    graded = [grading(row) for row in shown]
    if out is not None:
        out.write_text("".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in graded), "utf-8")
    summary = summarise(graded)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _print(summary)


def summarise(graded: Iterable[Graded]) -> dict[str, Json]:
    """How many verdicts of each kind, the mean score of those that have one, the time they took, why some have none."""
    found = list(graded)
    counts = Counter(each.verdict for each in found)
    scores = [each.score for each in found if each.score is not None]
    times = sorted(each.milliseconds for each in found) or [0.0]
    return {
        "answers": len(found),
        **{name: counts[name] for name in COLOURS},
        "mean_score": sum(scores) / len(scores) if scores else None,
        "milliseconds": round(sum(times), 3),
        "slowest_ms": times[-1],
        "unscored": dict(Counter(each.reason for each in found if each.score is None).most_common(MOST_REASONS)),
    }


def _print(summary: dict[str, Json]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in summary.items():
        if not isinstance(value, dict):
            shown = f"{value:,.6g}" if isinstance(value, int | float) else "none: no answer has a score"
            table.add_row(name.replace("_", " "), shown, style=COLOURS.get(name))
    console = Console()
    console.print(table)
    reasons = summary["unscored"]
    assert isinstance(reasons, dict)
    for reason, count in reasons.items():
        console.print(f"[dim]{count} without a score:[/dim] {escape(printable(reason))}")
