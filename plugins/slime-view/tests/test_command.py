"""`slime view` as a process: the address it prints, what it needs to be told, and its end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from slime_core.cli import run_cli
from tests.tables import table

MakeRun = Callable[..., "Made"]  # noqa: F821  # of conftest.py


def test_command_prints_an_address_and_ends_at_ctrl_c(make_run: MakeRun) -> None:
    command = [sys.executable, "-m", "slime_core", "view", str(make_run().folder), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"SLIME_VIEW_TOKEN": "mine"}
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith("/?token=mine")
    asked = Request(address.replace("/?token=mine", "/api/runs"), headers={"authorization": "Bearer mine"})
    with urlopen(asked) as answer:
        assert b'"name":"first"' in answer.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) in (0, 130)
    process.stdout.close()


@table("host", ["0.0.0.0", "10.1.2.3", "machine.example", "::"])
def test_reachable_host_needs_confirmation(make_run: MakeRun, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["view", str(make_run(f"run-{host}").folder), "--host", host]) == 2
    assert f"other machines can reach {host}" in capsys.readouterr().err


def test_taken_port_is_an_error(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_cli(["view", str(make_run().folder), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_command_refuses_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["view", str(tmp_path), "--port", "0"]) == 2
    assert "is not a run folder: it has no run.toml" in capsys.readouterr().err
