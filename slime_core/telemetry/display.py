"""Shows the progress of a run: its phase, its metrics and what it waits for, in plain lines.

With slime-view, a terminal gets a live dashboard instead.

Example:

    with make_display(progress=True) as display:        # the dashboard on a terminal, plain lines anywhere else
        display.start(40, "slime demo, task chain")
        display.row(0, {"rollout/raw_reward": 0.12, "perf/step_time": 0.9})
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, TextIO, cast

from slime_core.catalog import PARTS
from slime_core.errors import one_line, printable
from slime_core.lazy import entry_point_of
from slime_core.secrets import REDACTOR
from slime_core.telemetry import names


@dataclass(slots=True)
class Progress:
    """State of a run as the display shows it; times are of `time.monotonic`."""

    title: str
    total: int
    """Number of rollouts of the whole run."""
    done: int
    """Rollouts done, including the ones before a resume."""
    began: float
    """Time at which this process began."""
    phase: str = ""
    phase_began: float = 0.0
    detail: Callable[[], str] | None = None
    """Returns what the phase waits for now; called from the display's thread."""
    unit: str = "rollout"
    first: int = 0
    """Rollouts done before this process began."""
    paced_from: float = 0.0
    """Time at which the first rollout of this process began."""

    def finish(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Record that a rollout is done. The pace counts from this process's first rollout, without the start-up."""
        if self.done == self.first:
            now = time.monotonic()
            self.paced_from = max(self.began, now - metrics.get(names.STEP_TIME, math.inf))
        self.done = rollout_id + 1

    @property
    def waits_for(self) -> str:
        """The phase, with what it waits for."""
        if not self.phase or self.detail is None:
            return self.phase
        return f"{self.phase} ({safe_line(self.detail())})"

    def remaining(self) -> float | None:
        """Seconds left at this process's mean pace; None before its first rollout is done."""
        done = self.done - self.first
        return (time.monotonic() - self.paced_from) / done * (self.total - self.done) if done else None


WARM_UP_INTERVAL = 2.0
"""Minimum seconds between two lines about steps without a reward."""


class Display:
    """Prints one line per rollout and evaluation; after `silence` seconds without one, what the run waits for.

    Before the first of them, each phase gets a line, since starting workers and loading models takes a while.

    Steps without a reward (a warm start) are many and short: the first, the last, and one every two seconds get a line.

    Every call is cheap and thread-safe. A subclass may show the progress in another way.
    """

    def __init__(self, stream: TextIO | None = None, silence: float = 30.0) -> None:
        self.progress: Progress | None = None
        self.lock = threading.RLock()
        self.prints_phases = True
        """Whether each phase gets a line; False from the first row on."""
        self._stream = stream if stream is not None else sys.stdout
        self._silence = silence
        self._last_line = time.monotonic()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def start(self, total_rollouts: int, title: str, first_rollout: int = 0, unit: str = "rollout") -> None:
        """Begin; `first_rollout` counts rollouts before a resume, and `unit` is what the run counts."""
        now = time.monotonic()
        self.progress = Progress(
            safe_line(title), total_rollouts, first_rollout, now, phase_began=now, first=first_rollout, unit=unit
        )
        self._started(self.progress)

    def phase(self, text: str, detail: Callable[[], str] | None = None) -> None:
        """Show what the run waits for from now on; `detail` is called from any thread whenever the phase is shown."""
        with self.lock:
            if self.progress is not None:
                self.progress.phase, self.progress.phase_began = safe_line(text), time.monotonic()
                self.progress.detail = detail
                if self.prints_phases:
                    self._write(self.progress.phase)

    def row(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Show a row of metrics. A row with more than an evaluation ends its rollout."""
        if self.progress is None:
            return
        with self.lock:
            if not is_evaluation(metrics):
                self.progress.finish(rollout_id, metrics)
            self._row(self.progress, rollout_id, metrics)

    def message(self, text: str) -> None:
        """Show a line of text, such as a warning or the path of a checkpoint."""
        with self.lock:
            self._write(safe_line(text))

    def stop(self) -> None:
        """Stop, and leave the screen as it is. May be called twice."""
        self._stopped.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()

    def _started(self, progress: Progress) -> None:
        resumed = f", resumed after {progress.first}" if progress.first else ""
        self._write(f"{progress.title}: {progress.total} {progress.unit}s{resumed}")
        self._watcher = threading.Thread(target=self._watch, args=(progress,), name="slime-display", daemon=True)
        self._watcher.start()

    def _row(self, progress: Progress, rollout_id: int, metrics: Mapping[str, float]) -> None:
        is_first, self.prints_phases = self.prints_phases, False
        evals = [f"{name} {metrics[names.eval_reward(name)]:.3f}" for name in names.eval_datasets(metrics)]
        recent = time.monotonic() - self._last_line < WARM_UP_INTERVAL and progress.done < progress.total
        if not is_evaluation(metrics) and (names.REWARD in metrics or is_first or not recent):
            self._write(_rollout_line(progress, metrics))
        if evals:
            self._write(f"eval at {progress.done}/{progress.total}  {'  '.join(evals)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _watch(self, progress: Progress) -> None:
        while not self._stopped.wait(max(0.01, self._last_line + self._silence - time.monotonic())):
            with self.lock:
                if time.monotonic() - self._last_line >= self._silence:
                    waited = time.monotonic() - progress.phase_began
                    self._write(f"waiting for: {progress.waits_for or 'the run to begin'} ({seconds(waited)})")

    def _write(self, line: str) -> None:
        self._last_line = time.monotonic()
        try:
            self._stream.write(printable(line) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The reader is gone, the disk is full or the stream is closed: the run must continue without its display.
            self._stopped.set()


def is_evaluation(metrics: Mapping[str, float]) -> bool:
    """Whether a row has evaluation metrics (and perhaps statistics of plugins and engines), but no step."""
    return names.STEP_TIME not in metrics and any(name.startswith(names.EVAL_PREFIX) for name in metrics)


def safe_line(text: str) -> str:
    """Return a text on one line, without secrets."""
    return one_line(REDACTOR.redact(text), " ").strip()


def seconds(value: float) -> str:
    """Format a duration: 4.2 s, 1:05, 2:01:05."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def make_display(progress: bool = True) -> Display:
    """Return the dashboard if `progress` is set, slime-view is installed and the terminal supports it; else lines."""
    entry = entry_point_of(PARTS, "dashboard") if progress else None
    dashboard = cast(Callable[[], Display | None], entry.load())() if entry else None
    return dashboard or Display()


def _rollout_line(progress: Progress, metrics: Mapping[str, float]) -> str:
    parts = [
        ("reward {:.3f}", names.REWARD),
        ("loss {:.4f}", names.LOSS),
        ("length {:.1f}", names.RESPONSE_LENGTH),
        ("{:.0f} tokens/s", names.THROUGHPUT),
        ("{:.2f} s", names.STEP_TIME),
    ]
    hidden = names.LOSS if names.REWARD in metrics else None  # a policy's loss adds nothing to its reward
    shown = [form.format(metrics[name]) for form, name in parts if name in metrics and name != hidden]
    remaining = progress.remaining()
    if remaining is not None and progress.done < progress.total:
        shown.append(f"{seconds(remaining)} to go")
    width = len(str(progress.total))
    return "  ".join([f"{progress.unit} {progress.done:{width}d}/{progress.total}", *shown])
