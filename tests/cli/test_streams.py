"""What shows a command's output may go away, fill up or know few letters: the command ends as it would have."""

import io
import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from slime_core.cli.main import protect_output
from slime_core.run import list_checkpoints
from slime_core.telemetry import MetricsLog
from tests.conftest import Project

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
SLIME = [sys.executable, "-m", "slime_core"]


def full(stack: ExitStack) -> dict[str, Any]:
    disk = os.open("/dev/full", os.O_WRONLY)
    stack.callback(os.close, disk)
    return {"stdout": disk, "stderr": disk}


def no_reader(stack: ExitStack) -> dict[str, Any]:
    reading, writing = os.pipe()
    os.close(reading)
    stack.callback(os.close, writing)
    return {"stdout": writing, "stderr": writing}


def no_terminal(stack: ExitStack) -> dict[str, Any]:
    master, slave = pty.openpty()
    os.close(master)
    stack.callback(os.close, slave)
    return {"stdout": slave, "stderr": slave}


def closed(stack: ExitStack) -> dict[str, Any]:
    return {"preexec_fn": lambda: os.closerange(0, 3)}


def narrow(stack: ExitStack) -> dict[str, Any]:
    return {"env": {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def no_locale(stack: ExitStack) -> dict[str, Any]:
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return {"env": {**ENVIRONMENT, **variables}, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


BROKEN: list[Callable[[ExitStack], dict[str, Any]]] = [full, no_reader, no_terminal, closed, narrow, no_locale]


def test_output_that_cannot_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    wrong = []
    for broken in BROKEN:
        for arguments, code in ((["--help"], 0), (["plan", "größe–日本.toml"], 2)):
            with ExitStack() as stack:
                done = subprocess.run(
                    [*SLIME, *arguments], **{"env": ENVIRONMENT, **broken(stack)}, cwd=tmp_path, check=False
                )
            if done.returncode != code:
                wrong.append(f"{broken.__name__}, {arguments[0]}: {done.returncode} instead of {code}")
    assert not wrong


def test_a_run_saves_and_stops_when_its_terminal_is_closed(project: Project) -> None:
    project.write_run(num_rollout=10_000, save_interval=10_000)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*SLIME, "train", "run.toml"],
        env={**ENVIRONMENT, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the controlling terminal
    )
    os.close(slave)
    try:
        while not _rows(project.run):
            assert process.poll() is None
            if select.select([master], [], [], 0.05)[0]:
                os.read(master, 65_536)
        os.close(master)
        assert process.wait(60) == 75
    finally:
        process.kill()
        process.wait()
    newest = list_checkpoints(project.run / "checkpoints")[-1]
    assert newest.name == f"rollout_{_rows(project.run):06d}"


def test_a_reader_that_is_slow_gets_every_letter_of_a_non_blocking_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    sent, got = "größe " * 100_000, list[bytes]()

    def read() -> None:
        while data := os.read(reading, 4096):
            got.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "w", encoding="utf-8") as pipe, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe)
        patched.setattr(sys, "stderr", io.StringIO())
        protect_output()
        sys.stdout.write(sent)
        sys.stdout.flush()
    reader.join()
    os.close(reading)
    assert b"".join(got).decode() == sent


def _rows(run: Path) -> int:
    return len(MetricsLog.read(run / "metrics.jsonl")) if (run / "metrics.jsonl").exists() else 0
