"""Curves: the metrics of a run as columns, which grow with its metrics.jsonl.

A resume truncates the file to a checkpoint. Then the columns are rebuilt with a new generation number, which shows a
page that its copies are invalid.

Example:

    curves = Curves(Path("runs/first/metrics.jsonl"))
    curves.refresh()
    curves.after(0, ["rollout/raw_reward"])
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from slime_core.errors import RunFolderError
from slime_core.outputs import open_nofollow
from slime_core.sample import Json

GUARD = 64
"""Number of last read bytes that are compared to detect a rewritten file."""


@dataclass(slots=True)
class Column:
    """One metric: its values, and the rows that have one."""

    rows: "array[int]" = field(default_factory=lambda: array("l"))
    values: "array[float]" = field(default_factory=lambda: array("d"))


class Curves:
    """Columns of one metrics file, updated as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        """Number of times the columns were rebuilt."""
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self.rollouts: array[int] = array("l")
        """By row: number of the rollout."""
        self.columns: dict[str, Column] = {}
        """By name of the metric."""
        self._place = 0
        self._guard = b""

    def __len__(self) -> int:
        """Rows."""
        return len(self.rollouts)

    def refresh(self) -> None:
        """Read the appended rows, or the whole file if it was truncated.

        Raises:
            RunFolderError: a complete line is not a metrics row.
        """
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        try:
            with open_nofollow(self.path) as file:
                file.seek(self._place - len(self._guard))
                if file.read(len(self._guard)) != self._guard:
                    self._clear()
                    self.generation += 1
                    file.seek(0)
                data = file.read()
        except FileNotFoundError:
            if len(self):
                self._clear()
                self.generation += 1
            return
        end = data.rfind(b"\n") + 1
        for line in data[:end].splitlines():
            self._add(line)
        self._place += end
        self._guard = (self._guard + data[:end])[-GUARD:]

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            rollout = int(row["rollout_id"])
            values = {str(name): float(value) for name, value in row["metrics"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{self.path}, row {len(self) + 1} is not a metrics row: {error}") from None
        for name, value in values.items():
            column = self.columns.setdefault(name, Column())
            column.rows.append(len(self))
            column.values.append(value)
        self.rollouts.append(rollout)

    def after(self, row: int, names: Sequence[str]) -> dict[str, Json]:
        """Points of some `metrics` from a row on (`x` rollouts, `y` values), and the total number of `rows`."""
        with self._lock:
            return {"generation": self.generation, "rows": len(self), "metrics": self._after(row, names)}

    def _after(self, row: int, names: Sequence[str]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for name in names:
            if column := self.columns.get(name):
                start = bisect_left(column.rows, row)
                numbers: list[Json] = [self.rollouts[number] for number in column.rows[start:]]
                found[name] = {"x": numbers, "y": list[Json](column.values[start:])}
        return found
