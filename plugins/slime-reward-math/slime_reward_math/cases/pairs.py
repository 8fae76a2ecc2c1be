"""Pairs of bare answers with the verdict that is right, written for this grader's rules.

Example:

    Pair("1/2", "0.5", expected=True)
"""

import json
from pathlib import Path
from typing import NamedTuple

PAIRS = Path(__file__).with_name("pairs.jsonl")
"""One JSON object a line: gold, response, expected, kind, rule."""


class Pair(NamedTuple):
    """One pair."""

    gold: str
    """The gold answer."""
    answer: str
    """The given one."""
    expected: bool
    """Whether it is the same."""


def pairs() -> list[Pair]:
    """All of them."""
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    return [Pair(row["gold"], row["response"], row["expected"]) for row in rows]
