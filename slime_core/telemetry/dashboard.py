"""Dashboard: the live view on a terminal. rich's own thread redraws it, so it moves while the loop is busy.

with Dashboard(Console()) as display:
    display.start(40, "slime demo, task chain")
"""

import time
from collections import deque
from collections.abc import Mapping

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slime_core.secrets import escape_prints
from slime_core.telemetry import names
from slime_core.telemetry.display import Display, Progress, safe_line, seconds

REFRESHES_PER_SECOND = 4
MESSAGES = 4
MAX_WIDTH = 88
LABEL_WIDTH = 14
VALUE_WIDTH = 7


class Dashboard(Display):
    """Progress bar, curves, what is waited for and the last messages, in one panel that stays when the run ends."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
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
        self._live = Live(get_renderable=self._view, console=self.console, refresh_per_second=REFRESHES_PER_SECOND)
        self._live.start(refresh=True)
        if self.console.is_terminal:
            escape_prints()  # until `stop`, which gives the streams back

    def _row(self, progress: Progress, rollout_id: int, metrics: Mapping[str, float]) -> None:
        """Nothing to do: the next refresh reads the curves."""

    def _view(self) -> RenderableType:
        progress = self.progress
        assert progress is not None  # Live begins in _started
        now = self._stopped_at or time.monotonic()
        width = min(self.console.width, MAX_WIDTH)
        with self.lock:
            parts = [_bar(progress, now), _curves(progress, max(1, width - LABEL_WIDTH - 30))]
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


def _curves(progress: Progress, width: int) -> RenderableType:
    """A line per curve: last value, sparkline, first value. The newest points stay when the terminal is narrow."""
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
    evals = sorted(name for name in progress.curves if name.startswith(names.EVAL_PREFIX))
    rows[1:1] = [(f"eval {safe_line(name.removeprefix(names.EVAL_PREFIX))}", name, "{:.3f}", "cyan") for name in evals]
    for label, name, form, color in rows:
        if name not in progress.curves or (name == names.LOSS and names.REWARD in progress.curves):
            continue
        series = progress.curves[name]
        first = f"from {form.format(progress.first_values[name])}" if series.count > 1 else ""
        line = Text(series.sparkline()[-width:], style=color)
        table.add_row(Text(label), Text(form.format(series.last), style="bold"), Text(first), line)
    return table
