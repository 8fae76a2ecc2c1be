"""Rows: what `slime-grade` reads and writes, one JSON object a line.

Example:

    {"id": "a1", "gold": "1/2", "response": "0.5", "kind": "equiv"}
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click

from slime_core.sample import Json

KINDS = ("equiv", "mcq", "boxed")
"""Kinds that a row may have; under any other name it is a whole response."""


@dataclass(frozen=True, slots=True)
class Row:
    """One answer to be graded."""

    id: str
    """Its name; the line's number without one."""
    gold: Json
    """The gold answer."""
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
    """Name of the row."""
    verdict: str
    """correct, wrong, undecided or timeout."""
    score: float | None
    """The reward; None where there is none."""
    extracted: str | None
    """The answer that was found in the response."""
    reason: str
    """Why."""
    milliseconds: float
    """What it took."""


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
