"""A program that is run for a sample: its end, its limits, and that nothing of it is ever left."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slime_core.processes import CommandError, CommandResult, command
from slime_core.secrets import REDACTOR
from tests.isolation.conftest import is_running
from tests.tables import table

PYTHON = sys.executable
LEAVES_A_DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read().endswith("\\n"):
    time.sleep(0.01)
print("started", flush=True)
time.sleep(float(sys.argv[2]))
"""


def run(argv: Sequence[str], **options: object) -> CommandResult:
    return asyncio.run(command(argv, **{"timeout_s": 60.0} | options))  # type: ignore[arg-type]


def test_it_ends_with_its_outputs_and_its_code(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd()); print(sys.argv[1], file=sys.stderr); sys.exit(3)"
    ended = run([PYTHON, "-c", code, "an argument; not a shell's"], cwd=tmp_path)
    assert (ended.code, ended.stdout, ended.stderr) == (3, f"{tmp_path}\n", "an argument; not a shell's\n")
    assert run([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"]).code == -9
    assert run([PYTHON, "-c", "import sys; print(sys.stdin.read() == '')"]).stdout == "True\n"


def test_it_inherits_nothing_of_the_drivers_environment_and_secrets_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "abc")
    REDACTOR.add("sk-verysecretvalue", "$env:COMMAND_KEY")
    own = {"KEY": "sk-verysecretvalue"}
    ended = run([PYTHON, "-c", "import os; print(*sorted(os.environ), os.environ['KEY'])"], env=own)
    assert set(ended.stdout.split()) - {"LC_CTYPE"} == {"LANG", "KEY", "PATH", "$env:COMMAND_KEY"}


def test_of_a_flood_the_end_is_kept() -> None:
    ended = run([PYTHON, "-c", "for n in range(400_000): print(f'line {n:07d}')"])
    assert ended.stdout.endswith("line 0399999\n")
    assert len(ended.stdout) == 1 << 20


@table("argv", [["no-such-program"], [PYTHON, "-c", ""]])
def test_what_cannot_be_started_says_so(argv: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" if argv[0] == PYTHON else tmp_path
    with pytest.raises(CommandError, match=r"not be started: No such file or directory: .*(such|nowhere)") as raised:
        run(argv, cwd=missing)
    assert raised.value.reason == "start"


@table(
    "code, limit, reason",
    [
        ("print('so far', flush=True); import time; time.sleep(600)", {"timeout_s": 1.0}, "timeout"),
        ("x = bytearray(b'x') * (400 << 20); import time; time.sleep(600)", {"memory_mb": 200}, "memory"),
        (
            "import subprocess, time; [subprocess.Popen(['sleep', '600']) for _ in range(30)]; time.sleep(600)",
            {"most_processes": 20},
            "processes",
        ),
    ],
)
def test_over_a_limit_it_is_killed(code: str, limit: dict[str, object], reason: str) -> None:
    with pytest.raises(CommandError) as raised:
        run([PYTHON, "-c", code], **limit)
    assert raised.value.reason == reason
    if reason == "timeout":
        assert "it wrote:\nso far" in str(raised.value)


def test_a_daemon_of_its_own_session_ends_with_it(tmp_path: Path) -> None:
    assert run([PYTHON, "-c", LEAVES_A_DAEMON, str(tmp_path / "pid"), "0"]).code == 0
    assert not is_running(int((tmp_path / "pid").read_text()))
    with pytest.raises(CommandError):
        run([PYTHON, "-c", LEAVES_A_DAEMON, str(tmp_path / "late"), "600"], timeout_s=2.0)
    assert not is_running(int((tmp_path / "late").read_text()))


def test_a_cancelled_call_leaves_nothing(tmp_path: Path) -> None:
    def wait_until_it_runs() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)

    async def cancelled() -> None:
        argv = [PYTHON, "-c", LEAVES_A_DAEMON, str(tmp_path / "pid"), "600"]
        task = asyncio.create_task(command(argv, timeout_s=60.0))
        await asyncio.to_thread(wait_until_it_runs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_it_dies_with_the_driver(tmp_path: Path) -> None:
    driver = (
        "import asyncio, sys; from slime_core.processes import command; "
        "asyncio.run(command(sys.argv[1:], timeout_s=600.0))"
    )
    argv = [PYTHON, "-c", driver, PYTHON, "-c", LEAVES_A_DAEMON, str(tmp_path / "pid"), "600"]
    with subprocess.Popen(argv) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
    while is_running(int((tmp_path / "pid").read_text())):
        time.sleep(0.01)
