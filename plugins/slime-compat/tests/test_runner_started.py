"""The process of a run: its output is logged and shown, and Ctrl-C first requests a stop, then ends it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from slime_compat.runner.process import read_process, run_logged

PROGRAM = """
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
"""Sends Ctrl-C to its parent, and once more when the parent requests a stop."""


def test_first_ctrl_c_stops_gracefully_second_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, state = tmp_path / "run.log", tmp_path / "run.json"
    log.write_text("before\n")
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = run_logged([sys.executable, "-c", PROGRAM], os.environ, log, state)
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == 7
    assert log.read_text() == "before\nasked\nagain\n"
    assert capsys.readouterr().out == "asked\nagain\n"
    ended = read_process(state)
    assert ended is not None
    assert (ended.status, ended.begin, ended.is_running, ended.stop()) == (7, len("before\n"), False, False)


def test_missing_process_file_means_no_run(tmp_path: Path) -> None:
    assert read_process(tmp_path / "run.json") is None
