r"""`slime-grade explain`: one verdict, step by step.

Example:

    slime-grade explain "1/2" "so it is \boxed{0.5}"
"""

import json

import click
from rich.console import Console
from rich.markup import escape

from slime_core.errors import printable
from slime_core.sample import Json
from slime_reward_math.cli.grading import bare_grade, grading_of, parse_settings, reward_names
from slime_reward_math.cli.rows import Row
from slime_reward_math.cli.run import COLOURS
from slime_reward_math.extract import extract
from slime_reward_math.gold import gold_text
from slime_reward_math.grader import grade
from slime_reward_math.read import clean


@click.command()
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
        steps = {
            "gold": gold,
            "answer": graded.extracted,
            "verdict": graded.verdict,
            "score": graded.score,
            "reason": graded.reason,
        }
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
