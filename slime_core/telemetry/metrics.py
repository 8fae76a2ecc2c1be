"""Writes and reads metrics.jsonl: one row per rollout, evaluation or step, append-only.

A checkpoint stores `position()`. A resume truncates the file to it, and the run writes the later rows again.

Example:

    log = MetricsLog(run_dir / "metrics.jsonl")
    log.append(MetricsRow(rollout_id=0, step=0, time=time.time(), metrics={"rollout/raw_reward": 0.12}))
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from slime_core.errors import CheckpointError, NonFiniteError, RunFolderError
from slime_core.outputs import nofollow, open_nofollow
from slime_core.sample import Json, parse_count, parse_number
from slime_core.telemetry.names import MEASURED

# Turns an OSError into an error of the run folder that names the file.


@contextmanager
def run_folder_errors(path: Path, verb: str) -> Iterator[None]:
    """Raise RunFolderError instead of OSError."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot {verb} {path}: {error.strerror or error}. The run folder must be writable and have room; "
            "free some, or name another folder with --save."
        ) from error


# metrics.jsonl: one row per rollout, evaluation or step, appended and never rewritten.

SCHEMA_VERSION = 1
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, NonFiniteError)
"""Errors that parsing raises for a line that is not a row."""


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """One line of metrics.jsonl.

    Raises:
        NonFiniteError: a value is NaN or infinite; the message names its key.
    """

    rollout_id: int
    """Number of the rollout, from 0; for an evaluation, the number of rollouts done before it."""
    step: int
    """Optimizer steps done at that time."""
    time: float
    """Unix time in seconds."""
    metrics: Mapping[str, float]
    """Finite values by metric name."""

    def __post_init__(self) -> None:
        for name, value in self.metrics.items():
            if not math.isfinite(value):
                raise NonFiniteError(
                    f"metric {name} of rollout {self.rollout_id} is {value}: only finite numbers are kept"
                )

    def to_dict(self) -> dict[str, Json]:
        """Return the row as plain JSON."""
        metrics: dict[str, Json] = {name: float(value) for name, value in self.metrics.items()}
        return {
            "schema_version": SCHEMA_VERSION,
            "rollout_id": self.rollout_id,
            "step": self.step,
            "time": self.time,
            "metrics": metrics,
        }


class LineLog:
    """An append-only file of lines. Opening it cuts off an incomplete last line, which a kill during a write leaves.

    Raises:
        RunFolderError: the file cannot be opened or written (read-only folder, full disk).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with run_folder_errors(path, "open"):
            self._file = path.open("ab", buffering=0)
            self._size = end_of_last_line(path)
            self._file.truncate(self._size)

    def write(self, lines: bytes) -> None:
        """Write complete lines to the operating system; on failure, restore the file as it was."""
        with run_folder_errors(self.path, "write"):
            try:
                written = 0
                while written < len(lines):
                    written += self._file.write(lines[written:])
            except OSError:
                with suppress(OSError):  # opening the file again also cuts an incomplete line
                    self._file.truncate(self._size)
                raise
        self._size += len(lines)

    def position(self) -> int:
        """Return the size in bytes for a checkpoint, after all bytes are on disk."""
        with run_folder_errors(self.path, "write"):
            os.fsync(self._file.fileno())
        return self._size

    def truncate(self, position: int) -> None:
        """Cut off the lines after `position`.

        Raises:
            CheckpointError: the file is shorter, or no line ends there.
        """
        self.check(self.path, position)
        with run_folder_errors(self.path, "truncate"):
            self._file.truncate(position)
        self._size = position

    @staticmethod
    def check(path: Path, position: int) -> None:
        """Check that a line of a file ends at a checkpoint's position.

        Raises:
            CheckpointError: the file is shorter, or no line ends there.
            RunFolderError: the file cannot be read.
        """
        with run_folder_errors(path, "read"):
            size = nofollow(path).stat().st_size if path.exists() else 0
            if position <= size and (not position or position == end_of_last_line(path, position)):
                return
        raise CheckpointError(
            f"{path}: the checkpoint expects a line to end at byte {position}, but the file has {size} bytes and none "
            "ends there. It was changed since; restore it, or start a new run with another --save."
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MetricsLog(LineLog):
    """Writer and reader of metrics.jsonl."""

    def append(self, row: MetricsRow) -> None:
        """Write one row; errors as of `write`."""
        self.write(json.dumps(row.to_dict(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    @staticmethod
    def read(path: Path) -> list[MetricsRow]:
        """Return every complete row, oldest first; none without a file. An incomplete last line is left out.

        Raises:
            RunFolderError: a complete line is not a metrics row; the message names it.
        """
        rows = []
        for number, line in enumerate(read_lines(path), start=1):
            try:
                value = json.loads(line)
                if value["schema_version"] != SCHEMA_VERSION:
                    raise ValueError(
                        f"schema_version {value['schema_version']}, this slime-core reads {SCHEMA_VERSION}"
                    )
                counts = parse_count(value["rollout_id"]), parse_count(value["step"])
                rows.append(MetricsRow(*counts, parse_number(value["time"]), value["metrics"]))
            except _DAMAGE as error:
                raise RunFolderError(f"{path}, line {number} is not a metrics row: {error}") from None
        return rows


def strip_timing(row: MetricsRow) -> dict[str, Json]:
    """Return the row without `time`, `perf/` and `plugin/`: the part that two runs with the same seed share."""
    kept: dict[str, Json] = {name: each for name, each in row.metrics.items() if not name.startswith(MEASURED)}
    return {"rollout_id": row.rollout_id, "step": row.step, "metrics": kept}


def read_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file without line ends; none without a file."""
    try:
        with open_nofollow(path) as file:
            return file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def end_of_last_line(path: Path, limit: int | None = None, chunk: int = 1 << 16) -> int:
    """Return the offset after the last line end among the first `limit` bytes, 0 without one. Reads backwards."""
    with open_nofollow(path) as file:
        end = file.seek(0, os.SEEK_END) if limit is None else limit
        while end > 0:
            start = max(0, end - chunk)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
