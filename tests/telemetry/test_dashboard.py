import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from slime_core.telemetry import Display, make_display
from slime_view.dashboard import Dashboard, dashboard, sparkline
from tests.tables import table

ROW = {"rollout/raw_reward": 0.25, "rollout/response_len/mean": 41.25, "perf/tokens_per_sec": 3412.4}


class Screen(io.StringIO):
    """What a terminal is sent, and a signal when a text has been on it."""

    awaited = ""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        if self.awaited and self.awaited in plain(text):
            self.seen.set()
        return super().write(text)

    def last_frame(self) -> list[str]:
        text = plain(self.getvalue())
        return text[text.rindex("╭") :].splitlines()


def plain(text: str) -> str:
    """Text without the terminal's control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def terminal(screen: Screen, width: int = 100) -> Console:
    return Console(
        file=screen, force_terminal=True, width=width, height=40, color_system="truecolor", legacy_windows=False
    )


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_progress_curves_evaluation_and_messages_are_on_the_screen_at_the_end(screen: Screen) -> None:
    with Dashboard(terminal(screen)) as display:
        display.start(40, "demo, task chain")
        display.row(0, {"eval/heldout": 0.125})
        for rollout in range(20):
            display.row(rollout, {**ROW, "rollout/raw_reward": rollout / 20})
        display.row(20, {"eval/heldout": 0.75})
        display.message("checkpoint saved: [bold]x[/bold]\x1b[31m")
    frame = "\n".join(screen.last_frame())
    assert "─ demo, task chain ─" in frame
    assert "rollout 20/40" in frame
    assert re.search(r"reward +0\.950 +from 0\.000 +▁.*█", frame)
    assert re.search(r"eval heldout +0\.750 +from 0\.125 +▁█", frame)
    assert re.search(r"length +41\.2", frame)
    assert re.search(r"tokens/s +3,412", frame)
    assert "checkpoint saved: [bold]x[/bold] [31m" in frame


@table("width", [12, 40, 60, 200])
def test_every_line_fits_the_terminal(screen: Screen, width: int) -> None:
    with Dashboard(terminal(screen, width)) as display:
        display.start(1000, "a title that is longer than the narrowest of these terminals")
        display.phase("a long text about what is being waited for, longer than a narrow terminal")
        for rollout in range(100):
            display.row(rollout, {**ROW, "eval/a-data-set-with-a-long-name": 0.5})
        display.message("m" * 300)
    assert max(map(len, screen.last_frame())) <= width


def test_the_screen_moves_while_the_loop_is_busy(screen: Screen) -> None:
    screen.awaited = "waiting for: 8 groups of 8 samples (reward judge: 3 samples)"
    with Dashboard(terminal(screen)) as display:
        display.start(40, "demo")
        display.phase("8 groups of 8 samples", lambda: "reward judge: 3 samples")
        assert screen.seen.wait(30), "the refresh thread draws without a call from here"


def test_a_terminal_that_cannot_show_it_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    assert isinstance(dashboard(terminal(screen)), Dashboard)
    assert type(make_display(progress=False)) is Display
    assert type(make_display()) is Display, "output is no terminal here"
    monkeypatch.setenv("TERM", "dumb")
    assert dashboard(terminal(screen)) is None


SHOWN = r"""
import sys

import click

from slime_local.progress_count import ProgressCount
from slime_core.telemetry import make_display

HOSTILE = "told\x1b[2J\x1b]0;t\x07\x1b\x1b[0m[2J\x9b2J"


@click.command()
def shown() -> None:
    with make_display() as d:
        d.start(2, HOSTILE)
        d.message(HOSTILE)
        print(HOSTILE)
        print(HOSTILE, end="", flush=True)
        print(HOSTILE, file=sys.stderr)
        d.row(0, {"rollout/raw_reward": 0.5})
        d.row(1, {"rollout/raw_reward": 0.75})
    print(HOSTILE)
    print("\x1b[38;5;237mgrey\x1b[38;2;1;2;3mdark\x1b[0m")
    ProgressCount(7).show(3)
"""
"""A package's command."""
DRAWN = ("\x1b[?25l", "\x1b[?25h", "\r\x1b[2K\x1b[1A\x1b[2K", "\x1b[38;5;237m", "\x1b[38;2;1;2;3m", "\r3 of 7")


def test_a_command_draws_on_a_real_terminal_and_what_it_prints_cannot(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    dist = tmp_path / "shown-1.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Name: shown\nVersion: 1\n")
    (dist / "entry_points.txt").write_text("[slime.commands]\nshown = shown:shown\n")
    variables = {"TERM": "xterm-256color", "COLORTERM": "", "COLUMNS": "80", "PYTHONPATH": str(tmp_path)}
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "slime_core", "shown"]
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    received = b""
    try:
        while chunk := os.read(master, 65536):
            received += chunk
    except OSError:
        pass  # Linux says EIO when the other end is closed
    os.close(master)
    text = received.decode()
    assert process.wait() == 0, text
    shown = plain(text)
    assert "rollout 2/2" in shown
    assert re.search(r"reward +0\.750 +from 0\.500", shown)
    for drawn in DRAWN:
        assert drawn in text, drawn
        assert drawn.replace("\x1b", "\\u001b").replace("\r", "\\u000d") not in text, drawn
    assert shown.count("told") >= 5
    assert "\x1b[2J" not in text
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.sampled_from([1, 4, 48]))
def test_a_curve_of_any_length_fits(values: list[float], points: int) -> None:
    assert bool(values) <= len(sparkline(values, points)) <= points
