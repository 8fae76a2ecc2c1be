"""ServiceTracker: slime-core's tracker over a library that blocks; what is common to all of them.

Example:

    tracker = ServiceTracker("wandb", service, run_dir)
    await tracker.log(3, {"rollout/raw_reward": 0.4})

The run of the library begins with the first row, in the tracker's own thread: importing such a library takes seconds.
It begins with all rows of the run folder's metrics.jsonl that the library has not: those that it lost when the process
was killed, and those from before the tracker was chosen.
"""

import importlib.util
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slime_core.errors import ConfigError
from slime_trackers.own_thread import OwnThread
from slime_trackers.record import Record


@dataclass(frozen=True, slots=True)
class Opened:
    """A run of a library."""

    run: str
    """What it is named by."""
    last: int | None = None
    """The last step that it has, -1 before the first; None where all that was sent is there."""


class Service(Protocol):
    """A run of a library, used from one thread."""

    def open(self, run: str | None, config: Mapping[str, object]) -> Opened:
        """Begin a run or, given one, go on with it.

        Args:
            run: what an earlier call named it by, for the same run folder.
            config: the run file's keys.
        """
        ...

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""
        ...

    def finish(self) -> None:
        """End the run, all rows written."""
        ...


class ServiceTracker:
    """A tracker."""

    def __init__(self, name: str, service: Service, run_dir: Path) -> None:
        """`name` is the choice's, and that of its folder in the run folder."""
        self._service = service
        self._run_dir = run_dir
        self._path = run_dir / name / "slime.json"
        self._thread = OwnThread(f"slime-tracker-{name}")
        self._record: Record | None = None

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send what was not sent before."""
        await self._thread.call(self._log, step, dict(metrics))

    async def close(self) -> None:
        """End the run of the library, if one was begun."""
        try:
            await self._thread.call(self._finish)
        finally:
            self._thread.end()

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        record = self._record
        if record is None:
            record = Record(self._path)
            opened = self._service.open(record.run, run_file(self._run_dir))
            record.begin(opened.run, opened.last)
            self._record = record
            for earlier in rows(self._run_dir):
                self._send(record, *earlier)
        self._send(record, step, metrics)

    def _send(self, record: Record, step: int, metrics: Mapping[str, float]) -> None:
        if unsent := record.unsent(step, metrics):
            self._service.send(step, unsent)
            record.sent(step, unsent)

    def _finish(self) -> None:
        self._record = None
        self._service.finish()


def run_file(run_dir: Path) -> dict[str, object]:
    """The keys of the run folder's run file, in which secrets are the names of their variables; none without one."""
    path = run_dir / "run.toml"
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def rows(run_dir: Path) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Step and metrics of each row of the run folder's metrics.jsonl; a torn last line is none."""
    path = run_dir / "metrics.jsonl"
    for line in path.read_text("utf-8").splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            row = json.loads(line)
            yield row["step"], row["metrics"]


def need(library: str, tracker: str) -> None:
    """See that a library is installed, without importing it.

    Raises:
        ConfigError: it is not.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:  # a folder of its name, as wandb makes one, is no library
        raise ConfigError(
            f"the tracker '{tracker}' needs the package {library}, which is not installed. Type: "
            f"pip install 'slime-trackers[{tracker}]', or leave the tracker out."
        )
