"""SampleIndex: a row of numbers for every sample of a run, in memory, which grows with the folder.

A condition is one pass over 37 bytes a sample; texts stay in the files, and are read for the page that is shown.

Example:

    index = SampleIndex(Path("runs/first/samples"))
    while index.refresh(): ...
    index.find(Query(status="truncated", sort=Sort.LONGEST))
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slime_core.errors import RunFolderError
from slime_view.query import PAGE, Query, Sort
from slime_view.reading import opened
from slime_view.samples import Kind, list_shards

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
"""Of one sample; `source`, `status` and `reason` are numbers of names."""
COLUMNS = ("rollout_id", "source", "status", "drop_reason", "failure_reason", "reward", "response_length")
NAMES = ("source", "status", "drop_reason", "failure_reason")
Rows = NDArray[np.void]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sample is."""

    path: Path
    """Its file."""
    row: int
    """Which row of it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of samples."""

    count: int
    """How many there are on all pages."""
    places: Sequence[Place]


class Names:
    """Numbers for names, from 0 in the order in which they were met; None has one too."""

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
        """Files that are not read yet."""
        self.damaged: dict[Path, str] = {}
        """Files that cannot be read, and why; a file that is written anew is tried again."""

    def __len__(self) -> int:
        """Samples that were read."""
        with self._lock:
            return sum(map(len, self._parts.values()))

    def refresh(self, limit_s: float = 0.5) -> bool:
        """Read files that are new or were written anew, the newest first, for a while; whether some are left."""
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
        with opened(path, NAMES) as file:
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
        """All rows that were read, the newest rollout first; and the file of each number in `source`."""
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
        """Which rows have what the query's columns ask for."""
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
        """The page that a query without a text asks for."""
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
    """By which a file that was written anew is known; zeros of one that is gone."""
    try:
        told = path.stat()
    except OSError:
        return 0, 0, 0
    return told.st_ino, told.st_size, told.st_mtime_ns


def _kind(path: Path) -> Kind:
    return Kind(path.stem.rpartition("_")[0])


def _newest(path: Path) -> tuple[int, bool]:
    """Sorts by rollout, the last first, and an evaluation, which comes before the rollout of its number, behind it."""
    return -int(path.stem.rpartition("_")[2]), _kind(path) is Kind.EVAL
