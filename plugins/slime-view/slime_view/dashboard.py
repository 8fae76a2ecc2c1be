"""Terminal dashboard of a run: progress, curves, current waits and last messages, redrawn by a thread of rich."""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slime_core.secrets import drawable, escape_prints
from slime_core.telemetry import Display, names
from slime_core.telemetry.display import Progress, safe_line, seconds

BLOCKS = "▁▂▃▄▅▆▇█"
POINTS = 48


def sparkline(values: Sequence[float], points: int = POINTS) -> str:
    """A curve in at most `points` characters, each the mean of equally many values, scaled from minimum to maximum."""
    size = -(-len(values) // points) or 1
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    if not means or (low := min(means)) == (high := max(means)):
        return BLOCKS[3] * len(means)
    return "".join(BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means)


MESSAGES = 4
LABEL_WIDTH = 14
VALUE_WIDTH = 7


class Dashboard(Display):
    """Progress bar, curves, current waits and the last messages, in one panel that stays when the run ends."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.prints_phases = False
        self.console = console
        self._curves = dict[str, list[float]]()
        self._messages: deque[str] = deque(maxlen=MESSAGES)
        self._live: Live | None = None
        self._stopped_at: float | None = None

    def message(self, text: str) -> None:
        if self.progress is None:
            self.console.print(Text(safe_line(text)))
        else:
            self._messages.append(safe_line(text))

    def stop(self) -> None:
        if self._live is not None and self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self._live.stop()

    def _started(self, progress: Progress) -> None:
        self._live = Live(get_renderable=self._view, console=self.console, refresh_per_second=4)
        self._live.start(refresh=True)
        if self.console.is_terminal:
            escape_prints()  # until `stop`, which restores the streams

    def _row(self, progress: Progress, rollout_id: int, metrics: Mapping[str, float]) -> None:
        datasets = map(names.eval_reward, names.eval_datasets(metrics))
        for name in (names.REWARD, names.LOSS, names.RESPONSE_LENGTH, names.THROUGHPUT, *datasets):
            if name in metrics:
                self._curves.setdefault(name, []).append(metrics[name])

    def _view(self) -> RenderableType:
        progress = self.progress
        assert progress is not None  # Live begins in _started
        now = self._stopped_at or time.monotonic()
        width = min(self.console.width, 88)
        with self.lock:
            parts = [_bar(progress, now), _drawn(self._curves, max(1, width - LABEL_WIDTH - 30))]
            if self._stopped_at is None and progress.phase:
                waited = seconds(now - progress.phase_began)
                parts.append(Text.assemble(("waiting for: ", "dim"), progress.waits_for, (f"  {waited}", "dim")))
        parts.extend(Text(line, style="yellow", overflow="ellipsis", no_wrap=True) for line in tuple(self._messages))
        title = Text(progress.title, style="bold")
        return Panel(Group(*parts), title=title, title_align="left", border_style="cyan", box=box.ROUNDED, width=width)


def _bar(progress: Progress, now: float) -> RenderableType:
    remaining = progress.remaining()
    count = f"{progress.done}/{progress.total}"
    if progress.done >= progress.total or remaining is None:
        times = seconds(now - progress.began)
    else:
        times = f"{seconds(now - progress.began)}, {seconds(remaining)} to go"
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, style="dim")
    row.add_row(f"{progress.unit} {count}", ProgressBar(total=max(1, progress.total), completed=progress.done), times)
    return row


def _drawn(curves: Mapping[str, Sequence[float]], width: int) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis", max_width=LABEL_WIDTH)
    table.add_column(no_wrap=True, justify="right", min_width=VALUE_WIDTH)
    table.add_column(style="dim", no_wrap=True, justify="right", min_width=VALUE_WIDTH)
    table.add_column(no_wrap=True)
    rows = [
        ("reward", names.REWARD, "{:.3f}", "green"),
        ("loss", names.LOSS, "{:.4f}", "red"),
        ("length", names.RESPONSE_LENGTH, "{:.1f}", "blue"),
        ("tokens/s", names.THROUGHPUT, "{:,.0f}", "magenta"),
    ]
    evals = sorted(name for name in curves if name.startswith(names.EVAL_PREFIX))
    rows[1:1] = [(f"eval {safe_line(name.removeprefix(names.EVAL_PREFIX))}", name, "{:.3f}", "cyan") for name in evals]
    for label, name, form, color in rows:
        if name not in curves or (name == names.LOSS and names.REWARD in curves):
            continue
        values = curves[name]
        first = f"from {form.format(values[0])}" if len(values) > 1 else ""
        line = Text(sparkline(values, min(width, POINTS)), style=color)
        table.add_row(Text(label), Text(form.format(values[-1]), style="bold"), Text(first), line)
    return table


def dashboard(console: Console | None = None) -> Dashboard | None:
    """A dashboard for standard output; None without a capable terminal."""
    console = console or Console(file=drawable(sys.stdout))
    unicode_ok = console.encoding.lower().replace("-", "").startswith("utf")
    return Dashboard(console) if console.is_terminal and not console.is_dumb_terminal and unicode_ok else None
