r"""`slime-grade`: grade files of answers, explain one verdict.

Example:

    slime-grade run answers.jsonl --reward math --out graded.jsonl
    slime-grade explain "1/2" "so it is \boxed{0.5}"
"""

import asyncio
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from slime_core.errors import ConfigError, printable
from slime_core.outputs import refuse_occupied
from slime_core.roles import Reward, RewardContext, Setup, SyncReward
from slime_core.sample import Json, Sample
from slime_core.score import Score, Unscored, Verdict
from slime_reward_math.extract import extract, gold_text
from slime_reward_math.grader import Grade, compare, grade
from slime_reward_math.plugin import slime_rewards
from slime_reward_math.read import clean

KINDS = ("equiv", "mcq", "boxed")
"""Kinds that a row may have; under any other name it is a whole response."""


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
    """`choices`, `instruction_id_list` and whatever else a reward reads."""


@dataclass(frozen=True, slots=True)
class Graded:
    """One verdict."""

    id: str
    verdict: str
    """correct, wrong, undecided or timeout."""
    score: float | None
    """The reward; None where there is none."""
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


Grading = Callable[[Row], Graded]
"""Grades one row."""


def reward_names() -> list[str]:
    """The rewards that `--reward` takes."""
    return [spec.name for spec in slime_rewards()]


def parse_settings(given: Sequence[str]) -> dict[str, Json]:
    """Settings of a reward from the command line, `KEY=VALUE` each; a value is JSON, or else text.

    Raises:
        click.ClickException: one has no '='.
    """
    settings: dict[str, Json] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals:
            raise click.ClickException(f"--set {each}: expected KEY=VALUE, for instance --set strict_slime=true")
        try:
            settings[key] = json.loads(text)
        except ValueError:
            settings[key] = text
    return settings


def grading_of(name: str, settings: Mapping[str, Json]) -> Grading:
    """The grading by a reward's name; rows of the kind `mcq` are graded as `gpqa` where `math` was asked for.

    Raises:
        click.ClickException: the reward has no such settings, or cannot be built with them.
    """
    if name in ("math", "boxed_math") and not settings:
        choices, graded = grading_of("gpqa", {}), _timed(_by_grade)
        return lambda row: choices(row) if row.kind == "mcq" else graded(row)
    spec = next(spec for spec in slime_rewards() if spec.name == name)
    if unknown := sorted(settings.keys() - spec.model.model_fields.keys()):
        has = ", ".join(spec.model.model_fields) or "none"
        raise click.ClickException(f"reward {name} has no setting {', '.join(unknown)}; it has: {has}")
    try:
        reward = spec.factory(spec.model.model_validate(settings), Setup(_no_others, seed=0))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise click.ClickException(f"reward {name}: {problems}") from None
    except ConfigError as error:
        raise click.ClickException(str(error)) from None

    def by_score(row: Row) -> Graded:
        response = row.response if row.kind != "equiv" else f"\\boxed{{{row.response}}}"
        sample = Sample(label=row.gold, response=response, metadata=row.metadata)
        return _graded(row, asyncio.run(_verdict(reward, sample)), extract(response).text)

    return _timed(by_score)


async def _verdict(reward: Reward | SyncReward, sample: Sample) -> Verdict:
    returned = reward(sample, RewardContext(0, False, 0))
    return await returned if inspect.isawaitable(returned) else returned


def _no_others(role: str, name: str, **settings: object) -> object:
    raise click.ClickException(f"no {role} {name} here: the rewards of this plugin build no others")


def _by_grade(row: Row) -> Graded:
    found = bare_grade(row.gold, row.response) if row.kind == "equiv" else grade(row.gold, row.response)
    return Graded(row.id, found.outcome.value, found.score, found.answer, found.reason, 0.0)


def bare_grade(gold: object, answer: str) -> Grade:
    """Grade a bare answer; a box around it is taken off, as around a gold answer."""
    expected = gold_text(gold)
    return compare(expected, gold_text(answer) or answer) if expected else grade(gold, "")


def _graded(row: Row, verdict: Verdict, extracted: str | None) -> Graded:
    if isinstance(verdict, Score):
        right = verdict.components.get("correct", verdict.value) >= 1
        return Graded(row.id, "correct" if right else "wrong", verdict.value, extracted, "the reward's score", 0.0)
    reason = "not this reward's kind of sample"
    if isinstance(verdict, Unscored):
        reason = f"{verdict.reason}: {verdict.detail}" if verdict.detail else verdict.reason
    return Graded(row.id, "timeout" if reason.startswith("timeout") else "undecided", None, extracted, reason, 0.0)


def _timed(grading: Grading) -> Grading:
    def timed(row: Row) -> Graded:
        start = time.perf_counter()
        found = grading(row)
        return replace(found, milliseconds=round(1e3 * (time.perf_counter() - start), 3))

    return timed


MOST_REASONS = 5
"""Reasons for having no score that a summary names, the commonest first."""
COLOURS = {"correct": "green", "wrong": "red", "undecided": "yellow", "timeout": "magenta"}
"""Of the verdicts."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slime-reward-math")
def main() -> None:
    """Grade answers: files of them, or one step by step."""


@main.command()
@click.argument("answers", metavar="IN.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reward", type=click.Choice(reward_names()), default="math", show_default=True, help="How to grade.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the verdicts.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the reward; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(answers: Path, reward: str, out: Path | None, given: tuple[str, ...], as_json: bool) -> None:
    """Grade each line of IN.jsonl: an object with gold and response; id, kind, choices are optional.

    With kind "equiv" gold and response are two bare answers, with kind "mcq" the gold is a letter. Each line of the
    output has id, verdict, score, extracted, reason and milliseconds; without --out the verdicts themselves are not
    written.
    """
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    console = Console(stderr=True)
    rows = list(read_rows(answers))
    grading = grading_of(reward, parse_settings(given))
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


@main.command()
@click.argument("gold")
@click.argument("response")
@click.option("--bare", is_flag=True, help="RESPONSE is a bare answer without a box.")
@click.option("--reward", type=click.Choice(reward_names()), default="math", show_default=True, help="How to grade.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the reward; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def explain(gold: str, response: str, bare: bool, reward: str, given: tuple[str, ...], as_json: bool) -> None:
    """Show what is extracted from RESPONSE, what it and GOLD are read as, and what decides."""
    settings = parse_settings(given)
    if reward in ("math", "boxed_math") and not settings:
        steps = _steps(gold, response, bare)
    else:
        row = Row("1", gold, response, "equiv" if bare else "boxed", {})
        graded = grading_of(reward, settings)(row)
        steps = {"gold": gold, "answer": graded.extracted, "verdict": graded.verdict}
        steps |= {"score": graded.score, "reason": graded.reason}
    if as_json:
        click.echo(json.dumps(steps))
        return
    console = Console()
    for name, value in steps.items():
        colour = COLOURS.get(str(value), "default") if name == "verdict" else "default"
        console.print(f"[dim]{name:>15}[/dim]  [{colour}]{escape(printable(str(value)))}[/{colour}]")


def _steps(gold: str, response: str, bare: bool) -> dict[str, Json]:
    """What the grader of `math` does, one thing after another."""
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
