"""`slime diff`: compares two runs' settings, plugins, metrics, weights, and rewards of the same prompts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from slime_core.errors import last_of, printable
from slime_view.comparison import WINDOW, Comparison, Pair

VALUE = 60
"""Maximum characters of a shown setting."""


@click.command(short_help="Compare two runs: settings, metrics, prompts.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--prompts", default=5, show_default=True, type=click.IntRange(min=0), help="Number of prompts to list.")
@click.option("--all", "everything", is_flag=True, help="Also show timings and equal metrics.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all metrics, all prompts.")
def diff(first: Path, second: Path, prompts: int, everything: bool, as_json: bool) -> None:
    """Compare the run folder FIRST with SECOND.

    \b
    slime diff runs/first runs/second

    Metrics are means over the last ten rollouts that both runs have. Weights are compared in checkpoints that both
    runs have. Works while the runs are active.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    found = Comparison.of(first, second)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
        return
    for line in _lines(found, prompts, everything):
        click.echo(line)


def _lines(found: Comparison, prompts: int, everything: bool) -> Iterator[str]:
    for title, pairs in (("settings", found.settings), ("plugins", found.plugins)):
        yield _title(title, "" if pairs else "the same")
        for key, pair in pairs.items():
            yield f"  {key}  {_shown(pair)}"
    yield from _metrics(found, everything)
    yield _title("weights", _weights(found.weights))
    yield from _prompts(found, prompts)


def _metrics(found: Comparison, everything: bool) -> Iterator[str]:
    one, other = found.rollouts
    both = min(one, other)
    if not both:
        yield _title("metrics", f"{one} and {other} rollouts: nothing to compare yet")
        return
    about = _first_difference(found.same_until)
    over = f"means of the last {min(both, WINDOW)} rollouts of {one} and {other}"
    yield _title("metrics", f"{over}; {about}")
    for name, (left, right) in found.metrics.items():
        measured = name.startswith(("perf/", "plugin/"))
        if everything or (left != right and not measured):
            yield f"  {printable(name):<40} {left:>12.6g} {right:>12.6g} {right - left:>+12.4g}"


def _prompts(found: Comparison, most: int) -> Iterator[str]:
    differing = [each for each in found.prompts if each.gain]
    if not found.prompts:
        yield _title("prompts", "the runs have no prompt of these rollouts in common")
        return
    yield _title("prompts", f"{len(found.prompts)} in both, {len(differing)} with another mean reward")
    for each in differing[:most]:
        left, right = each.rewards
        yield f"  {printable(each.group):<40} {left:>12.4g} {right:>12.4g} {each.gain:>+12.4g}"


def _weights(same: Mapping[int, bool]) -> str:
    if not same:
        return "the runs have no checkpoint of the same rollout"
    differing = next((number for number, is_same in same.items() if not is_same), None)
    if differing is None:
        return f"the same in {_checkpoints(list(same))}"
    before = [number for number in same if number < differing]
    about = f"; the same in {_checkpoints(before)}" if before else ", the first that both have"
    return f"they differ in rollout_{differing:06d}{about}"


def _checkpoints(numbers: Sequence[int]) -> str:
    last = f"rollout_{numbers[-1]:06d}"
    return last if len(numbers) == 1 else f"{len(numbers)} checkpoints, the last of them {last}"


def _first_difference(rollout: int | None) -> str:
    if rollout is None:
        return "all the same"
    return f"the same before rollout {rollout}" if rollout else "they differ from the first rollout on"


def _title(title: str, about: str) -> str:
    return f"{click.style(f'{title:<10}', bold=True)} {about}".rstrip()


def _shown(pair: Pair) -> str:
    return " -> ".join("-" if each is None else last_of(json.dumps(each), VALUE) for each in pair)
