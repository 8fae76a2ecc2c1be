"""What came of the mutants of a file, why survivors are not a fault of the tests, and the tables of docs/mutants.md.

A room has a part of the page between two comments, and nothing else of the page is written:

    write("train", found, reasons())
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutants.md"
REASONS = ROOT / "tools" / "mutants.toml"
START, END = "<!-- written by tools/mutants.py: {} -->\n", "<!-- end -->\n"


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test noticed."""

    file: str
    """Name of the file in the room `train`, or of a sampled one with its room: "rollout/scheduler.py"."""
    was: str
    """The changed lines."""
    now: str
    """What they became."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of the mutants of one file."""

    file: str
    """Its name, as in `Survivor`."""
    mutants: int
    """How many there were."""
    survivors: Sequence[Survivor]
    """Those that no test noticed."""


def share_killed(found: Sequence[Figures]) -> float:
    """Of all mutants; 1 of none."""
    return 1 - sum(len(each.survivors) for each in found) / max(1, sum(each.mutants for each in found))


def reasons() -> Mapping[Survivor, str]:
    """Why each survivor that is known changes nothing that a test should see."""
    classes = tomllib.loads(REASONS.read_text("utf-8"))["survivors"]
    return {Survivor(each["file"], was, now): each["why"] for each in classes for was, now in each["mutants"]}


def write(room: str, found: Sequence[Figures], known: Mapping[Survivor, str], said: str = "") -> None:
    """The part of the page that is about this room, below what is said of it."""
    start = START.format(room)
    before, _, rest = PAGE.read_text("utf-8").partition(start)
    lines = ["", *([said, ""] if said else []), *_table(found), "", *_list(found, known), ""]
    PAGE.write_text(before + start + "\n".join(lines) + END + rest.partition(END)[2], "utf-8")


def _table(found: Sequence[Figures]) -> Iterator[str]:
    yield "| File | Mutants | Killed | Share |"
    yield "| --- | ---: | ---: | ---: |"
    rows = [(f"`{each.file}`", each.mutants, len(each.survivors)) for each in found if each.mutants]
    rows.append(("all", sum(count for _, count, _ in rows), sum(lost for _, _, lost in rows)))
    for name, count, lost in rows:
        yield f"| {name} | {count} | {count - lost} | {1 - lost / count:.1%} |"


def _list(found: Sequence[Figures], known: Mapping[Survivor, str]) -> Iterator[str]:
    rows = [(each, known[each]) for figures in found for each in figures.survivors if each in known]
    if rows:
        yield "| Survivor | Why no test should see it |"
        yield "| --- | --- |"
    for each, why in rows:
        was, now = (f"<code>{escape(text).replace('|', '&#124;')}</code>" for text in (each.was, each.now))
        yield f"| `{each.file}`: {was} became {now} | {why} |"
