"""`slime-grade compare`: where two graded files differ.

Example:

    slime-grade compare before.jsonl after.jsonl
"""

import json
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slime_core.sample import Json
from slime_reward_math.cli.rows import read_objects
from slime_reward_math.cli.run import COLOURS

MAX_SHOWN = 50
"""Differing answers that are listed."""
File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("before", metavar="A.jsonl", type=File)
@click.argument("after", metavar="B.jsonl", type=File)
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def compare(before: Path, after: Path, as_json: bool) -> None:
    """List the answers that A.jsonl and B.jsonl, two outputs of `slime-grade run`, judge differently."""
    one, two = _verdicts(before), _verdicts(after)
    changed = {name: (one[name], two[name]) for name in one if name in two and one[name] != two[name]}
    counts = Counter(f"{was} -> {now}" for was, now in changed.values())
    report: dict[str, Json] = {
        "in_both": len(one.keys() & two.keys()),
        "only_in_a": len(one.keys() - two.keys()),
        "only_in_b": len(two.keys() - one.keys()),
        "changed": dict(counts),
        "ids": list(changed),
    }
    if as_json:
        click.echo(json.dumps(report))
        return
    console = Console()
    console.print(f"{report['in_both']} in both, {report['only_in_a']} only in A, {report['only_in_b']} only in B")
    table = Table("id", "A", "B", box=None)
    for name, (was, now) in list(changed.items())[:MAX_SHOWN]:
        table.add_row(escape(name), f"[{_colour(was)}]{was}[/]", f"[{_colour(now)}]{now}[/]")
    console.print(table if changed else "no verdict differs")
    if len(changed) > MAX_SHOWN:
        console.print(f"and {len(changed) - MAX_SHOWN} more")


def _verdicts(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, row in read_objects(path):
        if "id" not in row or "verdict" not in row:
            raise click.ClickException(f"{path}:{number}: no id or no verdict; expected a line that `run --out` wrote")
        found[str(row["id"])] = str(row["verdict"])
    return found


def _colour(verdict: str) -> str:
    return COLOURS.get(verdict, "default")
