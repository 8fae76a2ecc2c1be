"""Plain lines, for a log file or a terminal that shows no more; and which display a run has.

Example:

    with make_display(progress=True) as display:        # the dashboard on a terminal, plain lines anywhere else
        display.start(40, "slime demo, task chain")
        display.row(0, {"rollout/raw_reward": 0.12, "perf/step_time": 0.9})
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console

from slime_core.secrets import drawable
from slime_core.telemetry import names
from slime_core.telemetry.display import Display, Progress, is_evaluation, safe_line, seconds
from slime_core.terminal import printable

WARM_UP_INTERVAL = 2.0
"""Least seconds between two lines about steps without a reward."""


class PlainDisplay(Display):
    """One short line per rollout and evaluation; after `silence` seconds without one, what is being waited for.

    Until the first of them each phase has a line: that workers start and models load takes a while.

    Steps without a reward, those of a warm start, are many and short: a line every two seconds, the first and the last.
    """

    def __init__(self, stream: TextIO | None = None, silence: float = 30.0) -> None:
        super().__init__()
        self.stream = stream if stream is not None else sys.stdout
        self.silence = silence
        self._last_line = time.monotonic()
        self._starting = True
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def message(self, text: str) -> None:
        with self.lock:
            self._write(safe_line(text))

    def phase(self, text: str, detail: Callable[[], str] | None = None) -> None:
        with self.lock:
            super().phase(text, detail)
            if self.progress is not None and self._starting:
                self._write(self.progress.phase)

    def stop(self) -> None:
        self._stopped.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()

    def _started(self, progress: Progress) -> None:
        self._write(f"{progress.title}: {progress.total} {progress.unit}s{_resumed(progress)}")
        self._watcher = threading.Thread(target=self._watch, args=(progress,), name="slime-display", daemon=True)
        self._watcher.start()

    def _row(self, progress: Progress, rollout_id: int, metrics: Mapping[str, float]) -> None:
        is_first, self._starting = self._starting, False
        evals = [f"{name} {metrics[names.eval_reward(name)]:.3f}" for name in names.eval_datasets(metrics)]
        recent = time.monotonic() - self._last_line < WARM_UP_INTERVAL and progress.done < progress.total
        if not is_evaluation(metrics) and (names.REWARD in metrics or is_first or not recent):
            self._write(_rollout_line(progress, metrics))
        if evals:
            self._write(f"eval at {progress.done}/{progress.total}  {'  '.join(evals)}")

    def _watch(self, progress: Progress) -> None:
        while not self._stopped.wait(max(0.01, self._last_line + self.silence - time.monotonic())):
            with self.lock:
                if time.monotonic() - self._last_line >= self.silence:
                    waited = time.monotonic() - progress.phase_began
                    self._write(f"waiting for: {progress.waits_for or 'the run to begin'} ({seconds(waited)})")

    def _write(self, line: str) -> None:
        self._last_line = time.monotonic()
        try:
            self.stream.write(printable(line) + "\n")
            self.stream.flush()
        except (OSError, ValueError):
            # The reader left, the disk is full or the stream is closed: the run outlives what shows it.
            self._stopped.set()


def make_display(progress: bool = True, console: Console | None = None) -> Display:
    """The dashboard where `progress` is wanted and standard output is a terminal that can show it; else plain lines."""
    console = console or Console(file=drawable(sys.stdout))
    unicode_ok = console.encoding.lower().replace("-", "").startswith("utf")
    if progress and console.is_terminal and not console.is_dumb_terminal and unicode_ok:
        from slime_core.telemetry.dashboard import Dashboard  # a log file needs no layout code

        return Dashboard(console)
    return PlainDisplay()


def _resumed(progress: Progress) -> str:
    return f", resumed after {progress.first}" if progress.first else ""


def _rollout_line(progress: Progress, metrics: Mapping[str, float]) -> str:
    parts = [
        ("reward {:.3f}", names.REWARD),
        ("loss {:.4f}", names.LOSS),
        ("length {:.1f}", names.RESPONSE_LENGTH),
        ("{:.0f} tokens/s", names.THROUGHPUT),
        ("{:.2f} s", names.STEP_TIME),
    ]
    hidden = names.LOSS if names.REWARD in metrics else None  # a policy's loss tells nothing beside its reward
    shown = [form.format(metrics[name]) for form, name in parts if name in metrics and name != hidden]
    remaining = progress.remaining()
    if remaining is not None and progress.done < progress.total:
        shown.append(f"{seconds(remaining)} to go")
    width = len(str(progress.total))
    return "  ".join([f"{progress.unit} {progress.done:{width}d}/{progress.total}", *shown])
