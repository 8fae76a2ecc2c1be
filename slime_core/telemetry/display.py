"""Display: what a run says while it runs: how far it is, what it waits for, and its rows of metrics.

Example:

    display.start(40, "slime demo, task chain")
    display.phase("generation of 256 samples")
    display.row(0, {"rollout/raw_reward": 0.12, "perf/step_time": 0.9})
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from slime_core.secrets import REDACTOR
from slime_core.telemetry import names
from slime_core.telemetry.series import Series
from slime_core.terminal import one_line


@dataclass(slots=True)
class Progress:
    """What a display knows of the run; times are of `time.monotonic`."""

    title: str
    """Which run it is."""
    total: int
    """Rollouts of the whole run."""
    done: int
    """Rollouts done, those before a resume included."""
    began: float
    """When this process began."""
    phase: str = ""
    """What is waited for."""
    phase_began: float = 0.0
    """Since when."""
    detail: Callable[[], str] | None = None
    """What the phase itself waits for now; called from the thread that draws."""
    unit: str = "rollout"
    """What is counted."""
    first: int = 0
    """Rollouts done before this process began."""
    paced_from: float = 0.0
    """When the first rollout of this process began."""
    curves: dict[str, Series] = field(default_factory=dict)
    """Every metric shown, by name."""
    first_values: dict[str, float] = field(default_factory=dict)
    """Where each curve began."""

    def add(self, metrics: Mapping[str, float]) -> None:
        """Append the metrics that are shown to their curves."""
        datasets = map(names.eval_reward, names.eval_datasets(metrics))
        for name in (names.REWARD, names.LOSS, names.RESPONSE_LENGTH, names.THROUGHPUT, *datasets):
            if name in metrics:
                self.curves.setdefault(name, Series()).add(metrics[name])
                self.first_values.setdefault(name, metrics[name])

    def finish(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Note that a rollout is done; the pace counts from the start of this process's first, without the start-up."""
        if self.done == self.first:
            now = time.monotonic()
            self.paced_from = max(self.began, now - metrics.get(names.STEP_TIME, math.inf))
        self.done = rollout_id + 1

    @property
    def waits_for(self) -> str:
        """The phase, and what it waits for itself."""
        if not self.phase or self.detail is None:
            return self.phase
        return f"{self.phase} ({safe_line(self.detail())})"

    def remaining(self) -> float | None:
        """Seconds to go at this process's mean pace; None before its first rollout is done."""
        done = self.done - self.first
        return (time.monotonic() - self.paced_from) / done * (self.total - self.done) if done else None


class Display(ABC):
    """Shows progress. Every call is cheap and safe from any thread; nothing but `start` must come first."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.lock = threading.RLock()

    def start(self, total_rollouts: int, title: str, first_rollout: int = 0, unit: str = "rollout") -> None:
        """Begin; `first_rollout` is how many rollouts a resumed run has behind it, `unit` what they are called."""
        now = time.monotonic()
        self.progress = Progress(safe_line(title), total_rollouts, first_rollout, now)
        self.progress.phase_began, self.progress.first, self.progress.unit = now, first_rollout, unit
        self._started(self.progress)

    def phase(self, text: str, detail: Callable[[], str] | None = None) -> None:
        """Say what is being waited for, from now on; `detail` is asked, from any thread, whenever it is shown."""
        if self.progress is not None:
            with self.lock:
                self.progress.phase, self.progress.phase_began = safe_line(text), time.monotonic()
                self.progress.detail = detail

    def row(self, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Show a row of metrics; one that holds more than an evaluation ends its rollout."""
        if self.progress is None:
            return
        with self.lock:
            self.progress.add(metrics)
            if not is_evaluation(metrics):
                self.progress.finish(rollout_id, metrics)
            self._row(self.progress, rollout_id, metrics)

    @abstractmethod
    def message(self, text: str) -> None:
        """Show a line of text, such as a warning or the path of a checkpoint."""

    @abstractmethod
    def stop(self) -> None:
        """End; what is on the screen stays. May be called twice."""

    @abstractmethod
    def _started(self, progress: Progress) -> None: ...

    @abstractmethod
    def _row(self, progress: Progress, rollout_id: int, metrics: Mapping[str, float]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def is_evaluation(metrics: Mapping[str, float]) -> bool:
    """Whether a row holds an evaluation, and what its plugins and engines did, and no step."""
    return names.STEP_TIME not in metrics and any(name.startswith(names.EVAL_PREFIX) for name in metrics)


def safe_line(text: str) -> str:
    """Text from anywhere on one line, without secrets."""
    return one_line(REDACTOR.redact(text), " ").strip()


def seconds(value: float) -> str:
    """A duration for people: 4.2 s, 1:05, 2:01:05."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
