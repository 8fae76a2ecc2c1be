"""Search: samples whose prompt or response has a text in it, the newest first, until a page is full or time is up.

The files themselves are searched, those alone that have a sample with the other conditions; an index of all texts would
be several times their size. Where time is up, the answer says how far it came, and the next call goes on there.

Example:

    found = search(index, Query(text="boxed", status="truncated"))
    search(index, replace(query, after=found.after))
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slime_core.errors import ConfigError
from slime_view.index import Place, SampleIndex
from slime_view.query import PAGE, Query
from slime_view.reading import opened

TEXTS = ("prompt", "messages", "response")
LIMIT_S = 1.2
"""After which a search shows what it has."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A page of a search."""

    places: Sequence[Place]
    after: str | None
    """Where the next page begins, for `Query.after`; None where nothing is left to search."""
    searched: int
    """Samples that were looked at for this page."""


def search(index: SampleIndex, query: Query, limit_s: float = LIMIT_S) -> Hits:
    """The page after `query.after`.

    Raises:
        ConfigError: `after` names no file of the folder.
        RunFolderError: a file cannot be read.
    """
    began, hits, searched = time.monotonic(), list[Place](), 0
    files = list(_files(index, query))
    for number, (path, wanted) in enumerate(files):
        for row in _matching(path, wanted, query.text or ""):
            hits.append(Place(path, int(row)))
            if len(hits) == PAGE:
                return Hits(hits, f"{path.stem}:{row}", searched + int(np.searchsorted(wanted, row)) + 1)
        searched += len(wanted)
        is_late = time.monotonic() - began > limit_s
        if is_late and number + 1 < len(files):
            return Hits(hits, f"{path.stem}:{wanted[-1]}", searched)
    return Hits(hits, None, searched)


def _files(index: SampleIndex, query: Query) -> Iterator[tuple[Path, NDArray[np.int32]]]:
    rows, paths = index.rows()
    found = np.flatnonzero(index.mask(rows, query))
    parts = [(number, rows["row"][found[begin:end]]) for number, begin, end in _stretches(rows["file"][found])]
    if query.after is None:
        yield from ((paths[number], wanted) for number, wanted in parts)
        return
    stem, _, row = query.after.rpartition(":")
    order = [number for number, _, _ in _stretches(rows["file"])]
    start = next((at for at, number in enumerate(order) if paths[number].stem == stem), None)
    if start is None or not row.isdecimal():
        raise ConfigError(f"after = {query.after!r} is not FILE:ROW of this run, or the file is gone: search anew")
    later = set(order[start:])
    for number, wanted in parts:
        left = wanted[wanted > int(row)] if number == order[start] else wanted
        if number in later and len(left):
            yield paths[number], left


def _stretches(numbers: NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
    if len(numbers):
        for begin, end in pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]):
            yield int(numbers[begin]), int(begin), int(end)


def _matching(path: Path, wanted: NDArray[np.int32], text: str) -> NDArray[np.int32]:
    with opened(path) as file:
        table = file.read(columns=list(TEXTS), use_threads=False)
    table = table.take(pa.array(wanted, pa.int32()))
    hit = np.zeros(len(table), np.bool_)
    for name in TEXTS:
        found = cast("pa.ChunkedArray[pa.BooleanScalar]", pc.match_substring(table[name], text, ignore_case=True))
        hit |= found.fill_null(False).to_numpy()  # type: ignore[arg-type]  # the stubs take no plain value
    return wanted[hit]
