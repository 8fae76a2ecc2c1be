"""ServiceTracker: the common part of all trackers whose library blocks.

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


class OwnThread:
    """One thread that makes the calls of a blocking library, in order, while the event loop goes on.

    It starts with the first call. A call whose caller was cancelled is still made. The thread is a daemon, so that a
    library that hangs cannot keep the run's process from ending, as a thread of a pool would.
    """

    def __init__(self, name: str) -> None:
        """Take the thread's name."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[P, ResultT], *args: P.args, **kwargs: P.kwargs) -> ResultT:
        """What `function` returns or raises, after all calls before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        answer: Future[ResultT] = Future()

        def make() -> None:
            # Not `set_running_or_notify_cancel`: a call is made even if its caller was cancelled.
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # SystemExit too: it is the caller's to judge
                with contextlib.suppress(Exception):  # the caller was cancelled
                    answer.set_exception(error)
            else:
                with contextlib.suppress(Exception):
                    answer.set_result(result)

        self._calls.put(make)
        return await asyncio.wrap_future(answer)

    def end(self) -> None:
        """End the thread after the queued calls; a later call starts a new one."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _work(self) -> None:
        while (make := self._calls.get()) is not None:
            make()


class Record:
    """The library's run that belongs to a run folder, and the last step sent, so that a resume continues that run.

    After a resume the steps since the checkpoint are repeated. The libraries would drop them or draw them twice, so a
    sent step is not sent again: a curve keeps its first value per step. The file is rewritten after each row.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self._path = path
        kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.run: str | None = cast(str | None, kept.get("run"))
        """The run, as the library names it; None before it was made."""
        self._step = int(kept.get("step", -1))
        self._names: set[str] | None = set(cast(list[str], kept.get("names", [])))

    def begin(self, run: str, last: int | None) -> None:
        """Go on with a run.

        Args:
            run: nothing was sent yet if it is another than before.
            last: the last step that the library has, -1 before the first, where it can tell: what it held in memory is
                lost if its process was killed. None: it has all that was sent.
        """
        if run != self.run:
            self.run, self._step, self._names = run, -1, set()
        if last is not None and last != self._step:
            self._step, self._names = last, None
        self._write()

    def unsent(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """What of a row was not sent; an evaluation and a training row may share a step."""
        if step < self._step:
            return {}
        if step > self._step:
            return dict(metrics)
        return {name: value for name, value in metrics.items() if self._names is not None and name not in self._names}

    def sent(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep that this was sent."""
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
        """`name` is the tracker's choice, and names its folder in the run folder."""
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
            for row in MetricsLog.read(self._run_dir / "metrics.jsonl"):
                self._send(record, row.step, row.metrics)
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
