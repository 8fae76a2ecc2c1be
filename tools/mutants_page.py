"""Results of the mutants of a file, reasons for survivors, and the table of docs/mutants.md.

Each room has a row of the table, which starts with its name; nothing else of the page is written:

    write("train", found)
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutants.md"
REASONS = ROOT / "tools" / "mutants.toml"


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


def write(room: str, found: Sequence[Figures], sample: str = "all mutants") -> None:
    """Replace the room's row of the table; `sample` says which mutants ran."""
    total, lost = sum(each.mutants for each in found), sum(len(each.survivors) for each in found)
    lowest = min((each for each in found if each.mutants), key=lambda each: share_killed([each]))
    low = f"`{lowest.file}`: {share_killed([lowest]):.1%}"
    row = f"| `{room}` | {sample} | {total} | {total - lost} | {share_killed(found):.1%} | {low} |"
    lines = PAGE.read_text("utf-8").splitlines()
    kept = [row if line.startswith(f"| `{room}` |") else line for line in lines]
    PAGE.write_text("\n".join(kept) + "\n", "utf-8")
