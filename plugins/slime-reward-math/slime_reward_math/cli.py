r"""`slime-grade`: grade files of answers, explain one verdict.

Example:

    slime-grade run answers.jsonl --out graded.jsonl
    slime-grade explain "1/2" "so it is \boxed{0.5}"
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from slime_core.errors import printable
from slime_core.outputs import refuse_occupied
from slime_core.roles import RewardContext
from slime_core.sample import Json, Sample
from slime_core.score import Score, Unscored
from slime_reward_math.extract import extract, gold_text
from slime_reward_math.grader import Grade, compare, grade
from slime_reward_math.plugin import GpqaSettings
from slime_reward_math.read import clean
from slime_reward_math.rewards.letters import Letters

KINDS = ("equiv", "mcq", "boxed")
"""Kinds with a special meaning; a row of any other kind is a whole response."""


@dataclass(frozen=True, slots=True)
class Row:
    """One answer to be graded."""

    id: str
    """Its name; the line's number without one."""
    gold: Json
    response: str
    """The response, or a bare answer where the kind is `equiv`."""
    kind: str
    """`equiv`: gold and response are two bare answers; `mcq`: the gold is a choice; anything else: a whole response."""
    metadata: dict[str, Json]
    """`choices`, `instruction_id_list` and other keys that rewards read."""


@dataclass(frozen=True, slots=True)
class Graded:
    """One verdict."""

    id: str
    verdict: str
    """correct, wrong, undecided or timeout."""
    score: float | None
    """The reward; None without one."""
    extracted: str | None
    """The answer that was found in the response."""
    reason: str
    milliseconds: float


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file.

    Raises:
        click.ClickException: a line is not a JSON object, lacks gold or response, or misspells a kind.
    """
    for number, found in read_objects(path):
        missing = [name for name in ("gold", "response") if name not in found]
        if missing:
            raise click.ClickException(f"{path}:{number}: no {' and no '.join(missing)}; it has {', '.join(found)}")
        known = ("id", "gold", "response", "kind", "metadata")
        metadata = found.get("metadata")
        fields: dict[str, Json] = {
            name: value for name, value in found.items() if name not in known and value is not None
        }
        fields.update(metadata if isinstance(metadata, dict) else {})
        kind = str(found.get("kind", "boxed"))
        if kind not in KINDS and (near := get_close_matches(kind, KINDS, n=1, cutoff=0.65)):
            raise click.ClickException(f"{path}:{number}: kind is {kind!r}. Did you mean {near[0]!r}?")
        yield Row(
            id=str(found.get("id", number)),
            gold=found["gold"],
            response=str(found["response"]),
            kind=kind,
            metadata=fields,
        )


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """The JSON objects of a file with the numbers of their lines, from 1."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                raise click.ClickException(f"{path}:{number}: no JSON: {error}") from None
            if not isinstance(found, dict):
                raise click.ClickException(f"{path}:{number}: expected a JSON object, found {line.strip()[:60]}")
            yield number, found


def graded(row: Row) -> Graded:
    """Grade one row, and measure the time."""
    start = time.perf_counter()
    if row.kind == "mcq":
        found = _by_letter(row)
    else:
        by_grader = bare_grade(row.gold, row.response) if row.kind == "equiv" else grade(row.gold, row.response)
        found = Graded(row.id, by_grader.outcome.value, by_grader.score, by_grader.answer, by_grader.reason, 0.0)
    return replace(found, milliseconds=round(1e3 * (time.perf_counter() - start), 3))


def _by_letter(row: Row) -> Graded:
    """Grade a choice as `gpqa` does."""
    sample = Sample(label=row.gold, response=row.response, metadata=row.metadata)
    verdict = asyncio.run(Letters(GpqaSettings())(sample, RewardContext(0, False, 0)))
    answer = extract(row.response).text
    if isinstance(verdict, Score):
        return Graded(row.id, "correct" if verdict.value else "wrong", verdict.value, answer, "the chosen letter", 0.0)
    assert isinstance(verdict, Unscored)
    reason = f"{verdict.reason}: {verdict.detail}" if verdict.detail else verdict.reason
    return Graded(row.id, "undecided", None, answer, reason, 0.0)


def bare_grade(gold: object, answer: str) -> Grade:
    """Grade a bare answer; a box around it is taken off, as around a gold answer."""
    expected = gold_text(gold)
    return compare(expected, gold_text(answer) or answer) if expected else grade(gold, "")


MOST_REASONS = 5
"""Maximum number of reasons for a missing score in a summary, most common first."""
COLOURS = {"correct": "green", "wrong": "red", "undecided": "yellow", "timeout": "magenta"}
"""Colours of the verdicts."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slime-reward-math")
def main() -> None:
    """Grade answers: files of them, or one step by step."""


@main.command()
@click.argument("answers", metavar="IN.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the verdicts.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(answers: Path, out: Path | None, as_json: bool) -> None:
    """Grade each line of IN.jsonl: an object with gold and response; id, kind, choices are optional.

    With kind "equiv" gold and response are two bare answers, with kind "mcq" the gold is a letter. Each line of the
    output has id, verdict, score, extracted, reason and milliseconds; without --out the verdicts themselves are not
    written. `slime reward try` grades a file by any other reward.
    """
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    console = Console(stderr=True)
    rows = list(read_rows(answers))
    shown = track(rows, "grading", console=console, disable=not console.is_terminal, transient=True)
    found = [graded(row) for row in shown]
    if out is not None:
        out.write_text("".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in found), "utf-8")
    summary = summarise(found)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _print(summary)


def summarise(graded: Iterable[Graded]) -> dict[str, Json]:
    """Counts of each verdict, the mean score of scored rows, their times, and reasons for missing scores."""
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


@main.command()
@click.argument("gold")
@click.argument("response")
@click.option("--bare", is_flag=True, help="RESPONSE is a bare answer without a box.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def explain(gold: str, response: str, bare: bool, as_json: bool) -> None:
    """Show the answer extracted from RESPONSE, how it and GOLD are parsed, and the deciding rule."""
    steps = _steps(gold, response, bare)
    if as_json:
        click.echo(json.dumps(steps))
        return
    console = Console()
    for name, value in steps.items():
        colour = COLOURS.get(str(value), "default") if name == "verdict" else "default"
        console.print(f"[dim]{name:>15}[/dim]  [{colour}]{escape(printable(str(value)))}[/{colour}]")


def _steps(gold: str, response: str, bare: bool) -> dict[str, Json]:
    """The steps of the `math` grader, in order."""
    found = bare_grade(gold, response) if bare else grade(gold, response)
    how = "given bare" if bare else extract(response).reason
    gold_form, answer_form = found.forms
    return {
        "gold": gold_text(gold),
        "answer": found.answer,
        "found": how,
        "gold cleaned": clean(gold_text(gold)),
        "answer cleaned": clean(found.answer) if found.answer is not None else None,
        "gold read as": gold_form,
        "answer read as": answer_form,
        "verdict": found.outcome.value,
        "reason": found.reason,
    }
