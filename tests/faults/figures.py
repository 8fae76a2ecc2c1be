"""Figures of the fault suite: what was tried and what came of it, printed as one table when the suite ends."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

WHOLE = os.environ.get("SLIME_FAULTS") == "whole"
"""Whether all faults are tried, as `make faults` does, or the fast part of them."""


@dataclass
class Figures:
    """One line of the table: faults of one kind."""

    what: str
    tried: int = 0
    resumed: int = 0
    """Runs that went on afterwards and ended well."""
    lost: int = 0
    """Groups."""
    over_used: int = 0
    """Groups."""
    different: int = 0
    """Runs that ended with anything else than an undisturbed one, where they must end with the same."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """What went wrong, each with how to see it again."""

    def row(self) -> Sequence[str]:
        """As text, for the table."""
        counts = (self.tried, self.resumed, self.lost, self.over_used, self.different)
        return [self.what, *map(str, counts), f"{self.seconds:.0f} s"]


@contextmanager
def measured(what: str) -> Iterator[Figures]:
    """A line of the table, with the time that the block takes; no problem is left at its end."""
    made, began = Figures(what), time.monotonic()
    ALL.append(made)
    try:
        yield made
    finally:
        made.seconds = time.monotonic() - began
    if made.problems:
        pytest.fail("\n".join(made.problems))


HEAD = ("faults", "tried", "resumed", "groups lost", "used beyond allowance", "different", "time")
ALL: list[Figures] = []


def table() -> str:
    """All figures, as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *(each.row() for each in ALL)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
