"""GPUs of a shared machine are held by one command each, whatever ends it. Real processes, real locks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tables import table

TOOL = Path(__file__).resolve().parents[2] / "tools/gpu_lock_exec"
SHOW = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])'
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the tool on a machine of two GPUs, and end whatever is left."""
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str, gpus: int = 2) -> "subprocess.Popen[str]":
        command = [sys.executable, str(TOOL), "--lock-folder", str(tmp_path), "--total-gpus", str(gpus), *argv]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def holding(code: str = "") -> tuple[str, ...]:
    """A command that says its devices and stays."""
    return ("--", sys.executable, "-uc", f"{SHOW}; {code or 'import time; time.sleep(60)'}")


def devices(process: "subprocess.Popen[str]") -> str:
    """What it says that it holds."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def is_waiting(process: "subprocess.Popen[str]", *told: str) -> Iterator[None]:
    """It says what it waits for, and has not begun."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert all(each in line for each in ("waiting for", *told)), line
    assert process.poll() is None
    yield


def test_two_commands_get_different_devices_and_a_third_waits_and_sees_who_has_them(start: Start) -> None:
    one, other = start("--count", "1", *holding()), start("--count", "1", *holding())
    assert {devices(one), devices(other)} == {"0", "1"}
    third = start("--count", "1", *holding())
    with is_waiting(third, f"held by process {one.pid} since", f"held by process {other.pid} since", "-uc"):
        one.terminate()
    assert devices(third) in {"0", "1"}


def test_a_killed_command_frees_its_devices(start: Start) -> None:
    one = start("--devices", "0,1", *holding())
    assert devices(one) == "0,1"
    other = start("--count", "2", *holding())
    with is_waiting(other, "2 of GPUs 0,1"):
        os.kill(one.pid, signal.SIGKILL)
    assert devices(other) == "0,1"


def test_a_child_that_outlives_the_command_keeps_its_devices(start: Start) -> None:
    shell = "sleep 60 & echo $CUDA_VISIBLE_DEVICES $!"
    one = start("--count", "2", "--", "sh", "-c", shell)
    held, child = devices(one).split()
    assert (held, one.wait(10)) == ("0,1", 0)
    other = start("--count", "1", *holding())
    with is_waiting(other, f"process {one.pid}"):
        os.kill(int(child), signal.SIGKILL)
    assert devices(other) == "0"


def test_many_are_not_starved_by_ones(start: Start) -> None:
    one, two = start("--count", "1", *holding()), start("--count", "1", *holding())
    devices(one), devices(two)
    both = start("--count", "2", *holding())
    with is_waiting(both, "2 of GPUs 0,1"):
        late = start("--count", "1", *holding())
    with is_waiting(late, "the first place in the queue"):
        one.terminate()
        two.terminate()
    assert devices(both) == "0,1"
    assert late.poll() is None
    both.terminate()
    assert devices(late) == "0"


@table("ended", [0, 3, 77])
def test_the_exit_status_is_the_commands(start: Start, ended: int) -> None:
    assert start("--count", "1", "--", sys.executable, "-c", f"raise SystemExit({ended})").wait(20) == ended


@table("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_command(start: Start, number: signal.Signals) -> None:
    code = (
        "import signal, sys, time; "
        f"signal.signal({int(number)}, lambda *_: sys.exit(40 + {int(number)})); print('ready'); time.sleep(60)"
    )
    process = start("--count", "1", *holding(code))
    devices(process), devices(process)
    process.send_signal(number)
    assert process.wait(20) == 40 + number


def test_a_wait_that_is_too_long_ends_and_leaves_nothing_locked(start: Start) -> None:
    one = start("--devices", "1", *holding())
    devices(one)
    began = time.monotonic()
    other = start("--count", "2", "--timeout", "0.5", *holding())
    _, told = other.communicate(timeout=20)
    assert other.returncode == 124
    assert time.monotonic() - began >= 0.5
    assert f"2 of GPUs 0,1 did not come in time; GPU 1 is held by process {one.pid}" in told
    assert devices(start("--devices", "0", *holding())) == "0"


@table(
    "argv, told",
    [
        (["--count", "3", "--", "true"], "--count 3: there are 2 GPUs here; --total-gpus says another number"),
        (["--count", "1"], "what is to be run?"),
        (["--", "true"], "one of the arguments --count --devices is required"),
        (["--count", "-1", "--", "true"], "-1 is below 0"),
        (["--devices", "0,0", "--", "true"], "expected different numbers"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(start: Start, argv: list[str], told: str) -> None:
    process = start(*argv)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 2
    assert told in error
