"""SampleIndex: an in-memory row of numbers for every sample of a run, updated as the folder grows.

A condition is one pass over 37 bytes per sample; texts stay in the files, and are read only for the shown page.

Example:

    index = SampleIndex(Path("runs/first/samples"))
    while index.refresh(): ...
    index.find(Query(status="truncated", sort=Sort.LONGEST))
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, cast, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slime_core.errors import ConfigError, RunFolderError, did_you_mean
from slime_view.samples import Kind, list_shards
from slime_view.samples.shard import open_shard

PAGE = 50
"""Samples per page."""


class Sort(Enum):
    """Which samples come first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    BEST = "best"
    WORST = "worst"
    LONGEST = "longest"
    SHORTEST = "shortest"


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions that a sample must all meet; None: no condition."""

    kind: str | None = None
    """`rollout` or `eval`."""
    rollout_min: int | None = None
    rollout_max: int | None = None
    reward_min: float | None = None
    """Lowest reward; excludes samples without a reward."""
    reward_max: float | None = None
    source: str | None = None
    """Name of the data set."""
    status: str | None = None
    reason: str | None = None
    """Why it failed or its group was dropped; `none` for kept samples, `any` for all others."""
    text: str | None = None
    """Text that the prompt or the response contains, ignoring case. Matches are sorted newest first."""
    sort: Sort = Sort.NEWEST
    offset: int = 0
    """Samples before the page."""
    after: str | None = None
    """For a search: the end of the previous page, `FILE:ROW`."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Query":
        """A query from URL parameters; empty parameters are ignored.

        Raises:
            ConfigError: one is unknown, or not of its type.
        """
        known = {each.name for each in fields(cls)}
        values: dict[str, object] = {}
        for name, text in given.items():
            if name not in known:
                raise ConfigError(
                    f"unknown condition {name!r}.{did_you_mean(name, known)} Choose from {', '.join(sorted(known))}"
                )
            if text:
                values[name] = _value(name, text, get_type_hints(cls)[name])
        return cls(**values)  # type: ignore[arg-type]  # each value has the type of its field


def _value(name: str, text: str, kind: object) -> object:
    try:
        if kind is Sort:
            return Sort(text)
        if kind is int or int in get_args(kind):
            return int(text)
        return float(text) if float in get_args(kind) else text
    except ValueError:
        raise ConfigError(f"{name} = {text!r} is not {_expected(kind)}") from None


def _expected(kind: object) -> str:
    if kind is Sort:
        return "one of " + ", ".join(each.value for each in Sort)
    return "a whole number" if kind is int or int in get_args(kind) else "a number"


ROW = np.dtype(
    [
        ("file", "i4"),
        ("row", "i4"),
        ("rollout", "i4"),
        ("kind", "i1"),
        ("source", "i4"),
        ("status", "i4"),
        ("reason", "i4"),
        ("reward", "f8"),
        ("length", "i4"),
    ]
)
"""Index columns of a sample; `source`, `status` and `reason` are numbers of names."""
COLUMNS = ("rollout_id", "source", "status", "drop_reason", "failure_reason", "reward", "response_length")
NAMES = ("source", "status", "drop_reason", "failure_reason")
Rows = NDArray[np.void]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a sample."""

    path: Path
    """Its file."""
    row: int
    """Its row in the file."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of samples."""

    count: int
    """Number of samples on all pages."""
    places: Sequence[Place]


class Names:
    """Numbers for names, from 0 in order of appearance; None has one too."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}

    def number(self, name: str | None) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def known(self, name: str | None) -> int:
        """The number of a name, -1 if no sample has it."""
        return self._numbers.get(name, -1)

    def all(self) -> list[str]:
        return sorted(name for name in self._numbers if name is not None)


class SampleIndex:
    """The index of one folder of samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources, self.statuses, self.reasons = Names(), Names(), Names()
        self._numbers: dict[Path, int] = {}
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        self._parts: dict[Path, Rows] = {}
        self._rows: Rows = np.zeros(0, ROW)
        self._is_old = False
        self._lock = Lock()
        self.waiting = 0
        """Number of unread files."""
        self.damaged: dict[Path, str] = {}
        """Unreadable files, with the reason; a rewritten file is tried again."""

    def __len__(self) -> int:
        """Samples that were read."""
        with self._lock:
            return sum(map(len, self._parts.values()))

    def refresh(self, limit_s: float = 0.5) -> bool:
        """Read new and rewritten files, newest first, for at most `limit_s`; returns whether some are left."""
        stamps = {path: _stamp(path) for kind in Kind for path in list_shards(self.folder, kind)}
        with self._lock:
            for path in [path for path in self._parts if self._stamps.get(path) != stamps.get(path)]:
                del self._parts[path]
                self.damaged.pop(path, None)
                self._is_old = True
        todo = sorted((path for path in stamps if path not in self._parts), key=_newest)
        began = time.monotonic()
        for number, path in enumerate(todo):
            try:
                part = self._read(path)
            except RunFolderError as error:
                part = np.zeros(0, ROW)
                self.damaged[path] = str(error)
            with self._lock:
                self._parts[path], self._stamps[path] = part, stamps[path]
                self._is_old = True
            self.waiting = len(todo) - number - 1
            if time.monotonic() - began > limit_s:
                break
        return self.waiting > 0

    def _read(self, path: Path) -> Rows:
        with open_shard(path, NAMES) as file:
            table = file.read(columns=list(COLUMNS), use_threads=False)
        rows = np.zeros(len(table), ROW)
        with self._lock:
            number = self._numbers.setdefault(path, len(self._numbers))
        rows["file"], rows["kind"] = number, list(Kind).index(_kind(path))
        rows["row"] = np.arange(len(table))
        rows["rollout"] = table["rollout_id"].to_numpy()
        rows["reward"] = table["reward"].to_numpy()  # NaN where there is none
        rows["length"] = table["response_length"].to_numpy()
        rows["source"] = _numbers(table["source"], self.sources)
        rows["status"] = _numbers(table["status"], self.statuses)
        failed, dropped = (_numbers(table[name], self.reasons) for name in ("failure_reason", "drop_reason"))
        rows["reason"] = np.where(failed == self.reasons.number(None), dropped, failed)
        return rows

    def rows(self) -> tuple[Rows, Sequence[Path]]:
        """All read rows, newest rollout first; and the file of each number in `source`."""
        with self._lock:
            if self._is_old:
                order = sorted(self._parts, key=_newest)
                self._rows = np.concatenate([np.zeros(0, ROW), *(self._parts[path] for path in order)])
                ends = np.cumsum([0, *(len(self._parts[path]) for path in order)])
                self._parts = {
                    path: self._rows[begin:end] for path, begin, end in zip(order, ends, ends[1:], strict=False)
                }
                self._is_old = False
            return self._rows, tuple(self._numbers)

    def mask(self, rows: Rows, query: Query) -> Mask:
        """Mask of the rows that match the query's columns."""
        kept: Mask = np.ones(len(rows), np.bool_)
        for names, column, wanted in (
            (self.sources, "source", query.source),
            (self.statuses, "status", query.status),
        ):
            if wanted is not None:
                kept &= rows[column] == names.known(wanted)
        if query.reason == "any":
            kept &= rows["reason"] != self.reasons.known(None)
        elif query.reason is not None:
            kept &= rows["reason"] == self.reasons.known(None if query.reason == "none" else query.reason)
        if query.kind is not None:
            kept &= rows["kind"] == [each.value for each in Kind].index(query.kind)
        for column, low, high in (
            ("rollout", query.rollout_min, query.rollout_max),
            ("reward", query.reward_min, query.reward_max),
        ):
            if low is not None:
                kept &= rows[column] >= low
            if high is not None:
                kept &= rows[column] <= high
        return kept

    def find(self, query: Query) -> Found:
        """The page for a query without a text."""
        rows, paths = self.rows()
        found = np.flatnonzero(self.mask(rows, query))
        page = _sorted(rows, found, query.sort)[query.offset : query.offset + PAGE]
        return Found(len(found), [Place(paths[rows["file"][at]], int(rows["row"][at])) for at in page])


def _sorted(rows: Rows, found: NDArray[np.intp], sort: Sort) -> NDArray[np.intp]:
    match sort:
        case Sort.NEWEST:
            return found
        case Sort.OLDEST:
            return found[np.argsort(rows["rollout"][found], kind="stable")]
        case Sort.BEST:
            return found[np.argsort(-rows["reward"][found], kind="stable")]
        case Sort.WORST:
            return found[np.argsort(rows["reward"][found], kind="stable")]
        case Sort.LONGEST:
            return found[np.argsort(-rows["length"][found], kind="stable")]
        case Sort.SHORTEST:
            return found[np.argsort(rows["length"][found], kind="stable")]


def _numbers(column: "pa.ChunkedArray[Any]", names: Names) -> NDArray[np.intp]:
    parts = [np.zeros(0, np.intp)]
    for chunk in column.chunks:
        assert isinstance(chunk, pa.DictionaryArray)
        numbers = np.array([*map(names.number, chunk.dictionary.to_pylist()), names.number(None)])
        parts.append(numbers[chunk.indices.fill_null(-1).to_numpy()])
    return np.concatenate(parts)


def _stamp(path: Path) -> tuple[int, int, int]:
    """A stamp that changes when a file is rewritten; zeros if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def _kind(path: Path) -> Kind:
    return Kind(path.stem.rpartition("_")[0])


def _newest(path: Path) -> tuple[int, bool]:
    """Sort key, newest first; an evaluation precedes the rollout with its number, so it sorts after it."""
    return -int(path.stem.rpartition("_")[2]), _kind(path) is Kind.EVAL


TEXTS = ("prompt", "messages", "response")
LIMIT_S = 1.2
"""Seconds after which a search returns its hits so far."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A page of a search."""

    places: Sequence[Place]
    after: str | None
    """Start of the next page, for `Query.after`; None at the end of the search."""
    searched: int
    """Number of samples searched for this page."""


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
        raise ConfigError(f"after = {query.after!r} is not FILE:ROW of this run, or the file was deleted: search again")
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
    with open_shard(path) as file:
        table = file.read(columns=list(TEXTS), use_threads=False)
    table = table.take(pa.array(wanted, pa.int32()))
    hit = np.zeros(len(table), np.bool_)
    for name in TEXTS:
        found = cast("pa.ChunkedArray[pa.BooleanScalar]", pc.match_substring(table[name], text, ignore_case=True))
        hit |= found.fill_null(False).to_numpy()  # type: ignore[arg-type]  # the stubs take no plain value
    return wanted[hit]
