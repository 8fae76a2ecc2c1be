"""ServiceTracker: the shared base of the trackers whose library makes blocking calls.

Example:

    tracker = ServiceTracker("wandb", service, run_dir)
    await tracker.log(3, {"rollout/raw_reward": 0.4})

The library's run begins with the first row, in a separate thread, because importing such a library takes seconds.
First the tracker sends every row of metrics.jsonl that the library lacks: rows lost when the process was killed, and
rows from before the tracker was chosen.
"""

import asyncio
import contextlib
import importlib.util
import json
import queue
import threading
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar, cast

from slime_core.errors import ConfigError
from slime_core.telemetry import MetricsLog

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class WorkerThread:
    """One thread that runs the calls to a blocking library in order, without blocking the event loop.

    The first call starts the thread. A call runs even if its caller was cancelled. The thread is a daemon, so a library
    that hangs cannot keep the run's process alive; a pool's threads would.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT:
        """Run `function` after all earlier calls; returns its result or raises its error."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        answer: Future[ResultT] = Future()

        def run() -> None:
            # Without `set_running_or_notify_cancel`: a call runs even if its caller was cancelled.
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # SystemExit too: the caller decides what to do with it
                with contextlib.suppress(Exception):  # the caller was cancelled
                    answer.set_exception(error)
            else:
                with contextlib.suppress(Exception):
                    answer.set_result(result)

        self._calls.put(run)
        return await asyncio.wrap_future(answer)

    def end(self) -> None:
        """End the thread after the queued calls; a later call starts a new one."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _work(self) -> None:
        while (run := self._calls.get()) is not None:
            run()


class SentRecord:
    """State file of a tracker: the library's run id and the last step sent. A resume continues from there.

    A resumed run repeats the steps since its checkpoint. The libraries would drop them or plot them twice, so a step is
    sent only once: a curve keeps its first value per step. The file is rewritten after each row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.run: str | None = cast(str | None, stored.get("run"))
        """The library's id of the run; None before the run exists."""
        self._step = int(stored.get("step", -1))
        self._names: set[str] | None = set(cast(list[str], stored.get("names", [])))

    def begin(self, run: str, last: int | None) -> None:
        """Continue a run.

        Args:
            run: the library's id of the run. A new id means that no row was sent yet.
            last: the last step that the library has stored, -1 before the first. A killed process loses the rows that
                the library kept in memory. None: the library has stored all sent rows.
        """
        if run != self.run:
            self.run, self._step, self._names = run, -1, set()
        if last is not None and last != self._step:
            self._step, self._names = last, None
        self._write()

    def unsent(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics of a row that were not sent; an evaluation row and a training row may share a step."""
        if step < self._step:
            return {}
        if step > self._step:
            return dict(metrics)
        return {name: value for name, value in metrics.items() if self._names is not None and name not in self._names}

    def mark_sent(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store that these metrics were sent."""
        self._names = {*(self._names or ()), *metrics} if step == self._step else set(metrics)
        self._step = step
        self._write()

    def _write(self) -> None:
        names = sorted(self._names) if self._names is not None else []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"run": self.run, "step": self._step, "names": names}), "utf-8")
        new.replace(self._path)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An open run of a library."""

    run: str
    """The library's id of the run."""
    last: int | None = None
    """The last step that the library has stored, -1 before the first; None: it has stored all sent rows."""


class Service(Protocol):
    """A run of a library, used from one thread."""

    def open(self, run: str | None, config: Mapping[str, object]) -> OpenRun:
        """Start a run, or continue `run`.

        Args:
            run: the id that an earlier call returned for the same run folder.
            config: the run file's keys.
        """
        ...

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""
        ...

    def finish(self) -> None:
        """End the run after all rows are written."""
        ...


class ServiceTracker:
    """A tracker that sends rows to a `Service` from a separate thread."""

    def __init__(self, name: str, service: Service, run_dir: Path) -> None:
        """Create a tracker; `name` also names its folder in the run folder."""
        self._service = service
        self._run_dir = run_dir
        self._path = run_dir / name / "slime.json"
        self._thread = WorkerThread(f"slime-tracker-{name}")
        self._record: SentRecord | None = None

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics that were not sent before."""
        await self._thread.call(self._log, step, dict(metrics))

    async def close(self) -> None:
        """End the library's run, if it was started."""
        try:
            await self._thread.call(self._finish)
        finally:
            self._thread.end()

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        record = self._record
        if record is None:
            record = SentRecord(self._path)
            opened = self._service.open(record.run, run_file(self._run_dir))
            record.begin(opened.run, opened.last)
            self._record = record
            for row in MetricsLog.read(self._run_dir / "metrics.jsonl"):
                self._send(record, row.step, row.metrics)
        self._send(record, step, metrics)

    def _send(self, record: SentRecord, step: int, metrics: Mapping[str, float]) -> None:
        if unsent := record.unsent(step, metrics):
            self._service.send(step, unsent)
            record.mark_sent(step, unsent)

    def _finish(self) -> None:
        self._record = None
        self._service.finish()


def run_file(run_dir: Path) -> dict[str, object]:
    """Keys of the run folder's run file, empty without a file; a secret is the name of its environment variable."""
    path = run_dir / "run.toml"
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def require_library(library: str, tracker: str) -> None:
    """Check that a library is installed, without importing it. Raises ConfigError: it is not."""
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:  # a folder with the library's name, such as `wandb/` of an offline run
        raise ConfigError(
            f"the tracker '{tracker}' needs the package {library}, which is not installed. Run "
            f"`pip install 'slime-trackers[{tracker}]'`, or choose another tracker."
        )
