"""The process of a run: what it says is kept and shown, it is found again, and Ctrl-C asks it first, then ends it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from slime_compat.runner.process import read_note, run_logged

TOLD = """
import os, signal, sys, time

def ended(number, frame):
    print("again" if number == signal.SIGINT else "asked", flush=True)
    if number == signal.SIGINT:
        sys.exit(7)
    os.kill(os.getppid(), signal.SIGINT)

for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, ended)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""
"""Presses Ctrl-C of who has started it, and once more when that asked it to end."""


def test_first_ctrl_c_stops_gracefully_second_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, note = tmp_path / "run.log", tmp_path / "run.json"
    log.write_text("before\n")
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = run_logged([sys.executable, "-c", TOLD], os.environ, log, note)
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == 7
    assert log.read_text() == "before\nasked\nagain\n"
    assert capsys.readouterr().out == "asked\nagain\n"
    left = read_note(note)
    assert left is not None
    assert (left.status, left.begin, left.runs, left.stop()) == (7, len("before\n"), False, False)


def test_missing_note_means_no_run(tmp_path: Path) -> None:
    assert read_note(tmp_path / "run.json") is None
