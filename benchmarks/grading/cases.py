"""Cases of the grading benchmark: pairs of a gold answer and a response, with the verdict that is right.

Example:

    read_cases(Path("pairs.jsonl"))      # fields gold, response, expected; kind, source, disputed optional
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Case:
    """One pair."""

    gold: str
    """The gold answer."""
    response: str
    """A response, or a bare answer where the kind is `equiv`."""
    expected: bool
    """Whether the response deserves to be paid."""
    kind: str
    """`equiv`: two bare answers; `boxed`: a whole response."""
    source: str
    """Where the pair comes from."""

    @property
    def wrapped(self) -> str:
        """The response as graders want it: a bare answer in a box, in a sentence."""
        if self.kind != "equiv":
            return self.response
        return f"Therefore, the final answer is $\\boxed{{{self.response}}}$."


def read_cases(path: Path) -> list[Case]:
    """The undisputed `equiv` and `boxed` cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        return list(_cases(json.loads(line) for line in lines if line.strip()))


def _cases(rows: Iterator[dict[str, object]]) -> Iterator[Case]:
    for row in rows:
        kind = str(row.get("kind", "equiv"))
        if kind in ("equiv", "boxed") and not row.get("disputed"):
            source = str(row.get("source", row.get("rule", "")))
            yield Case(str(row["gold"]), str(row["response"]), bool(row["expected"]), kind, source)
