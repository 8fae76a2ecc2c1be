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
from rich.progress import track
from rich.table import Table

from slime_reward_math.cli.grading import grading_of, reward_names
from slime_reward_math.cli.rows import Graded, read_rows

COLOURS = {"correct": "green", "wrong": "red", "undecided": "yellow", "timeout": "magenta"}
"""Of the verdicts."""


@click.command()
@click.argument("answers", metavar="IN.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reward", type=click.Choice(reward_names()), default="math", show_default=True, help="How to grade.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the verdicts.")
@click.option("--strict-slime", is_flag=True, help="Repeat slime's own verdicts.")
@click.option("--symbolic", is_flag=True, help="Let sympy decide what is undecided, in child processes.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(answers: Path, reward: str, out: Path | None, strict_slime: bool, symbolic: bool, as_json: bool) -> None:
    """Grade each line of IN.jsonl: an object with gold and response; id, kind, choices are optional.

    With kind "equiv" gold and response are two bare answers, with kind "mcq" the gold is a letter. Each line of the
    output has id, verdict, score, extracted, reason and milliseconds; without --out the verdicts themselves are not
    written.
    """
    console = Console(stderr=True)
    rows = list(read_rows(answers))
    grading = grading_of(reward, strict_slime, symbolic)
    shown = track(rows, "grading", console=console, disable=not console.is_terminal, transient=True)
    graded = [grading(row) for row in shown]
    if out is not None:
        out.write_text("".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in graded), "utf-8")
    summary = summarise(graded)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _print(summary)


def summarise(graded: Iterable[Graded]) -> dict[str, float]:
    """How many verdicts of each kind, the mean score of those that have one, and the time they took."""
    found = list(graded)
    counts = Counter(each.verdict for each in found)
    scores = [each.score for each in found if each.score is not None]
    times = sorted(each.milliseconds for each in found) or [0.0]
    return {
        "answers": len(found),
        **{name: counts[name] for name in COLOURS},
        "mean_score": sum(scores) / len(scores) if scores else 0.0,
        "milliseconds": round(sum(times), 3),
        "slowest_ms": times[-1],
    }


def _print(summary: dict[str, float]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), f"{value:,.6g}", style=COLOURS.get(name))
    Console().print(table)
