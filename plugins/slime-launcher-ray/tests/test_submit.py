"""`slime submit` against a cluster with a server of jobs; the command line is checked without one."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from job_server import OPEN, WAIT_S, job_server
from small_run import small_run

from slime_core.errors import ConfigError
from slime_launcher_ray.submit import submit
from tests.tables import table

RUN = """
import os
import signal
import sys
import time

print("arguments", sys.argv[1:], flush=True)
print("secret", os.environ["SLIME_SECRET_OF_TESTS"], flush=True)
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("ready", flush=True)
    time.sleep(300)
sys.exit(2 if "--bad" in sys.argv else 0)
"""
"""Stands for slime's command line on the cluster: what it is called with, and how it ends, is what counts here."""


@pytest.fixture(scope="module")
def jobs() -> Iterator[str]:
    """The address of a server of jobs."""
    with job_server({"SLIME_SECRET_OF_TESTS": "of the cluster"}, cpus=4) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run file, and a Python that runs what stands for slime."""
    (tmp_path / "run.toml").write_text("num_rollout = 1\n")
    (tmp_path / "slime.py").write_text(RUN)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "slime.py"} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def slime(*arguments: object) -> tuple[int, str]:
    """Exit code and output of `slime submit ARGUMENTS`."""
    command = [sys.executable, "-m", "slime_core", "submit", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | OPEN, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.cluster
def test_a_job_is_followed_to_its_end_and_ends_as_the_run_does(jobs: str, folder: Path) -> None:
    at = ("--address", jobs, "--python", folder / "python")
    code, printed = slime(folder / "run.toml", *at, "--follow", "--lr", "1e-5")
    assert code == 0, printed
    expected = ["-m", "slime_core", "train", str(folder / "run.toml"), "--no-progress", "--launcher", "ray"]
    assert f"arguments {[*expected, '--lr', '1e-5']}" in printed
    assert "secret of the cluster" in printed
    assert slime(folder / "run.toml", *at, "--follow", "--bad")[0] == 2


@pytest.mark.cluster
def test_a_run_is_trained_as_a_job_and_its_lines_are_printed(jobs: str, tmp_path: Path) -> None:
    run_file = small_run(tmp_path)
    code, printed = slime(run_file, "--address", jobs, "--follow", "--save", tmp_path / "run")
    assert code == 0, printed
    assert "rollout 2" in printed or "rollout_000002" in printed, printed
    assert " INFO sdk.py" not in printed.replace("\t", " ")  # of Ray's client
    assert (tmp_path / "run/checkpoints/rollout_000002").is_dir()
    code, printed = slime(run_file, "--address", jobs, "--follow", "--lr", "none")  # it is refused where it runs
    assert (code, "lr" in printed) == (2, True), printed


@pytest.mark.cluster
def test_a_job_is_looked_at_and_stopped(jobs: str, folder: Path) -> None:
    code, printed = slime(folder / "run.toml", "--address", jobs, "--python", folder / "python", "--wait")
    assert code == 0, printed
    job = printed.split()[1].rstrip(":")
    end = time.monotonic() + WAIT_S
    while "ready" not in slime("logs", job, "--address", jobs)[1]:
        assert time.monotonic() < end
    assert slime("status", job, "--address", jobs)[0] == 0
    assert "of the cluster" not in slime("status", job, "--address", jobs)[1]
    assert slime("stop", job, "--address", jobs)[0] == 0
    assert slime("logs", job, "--address", jobs, "--follow")[0] == 75
    code, printed = slime("status", job, "--address", jobs)
    assert (code, "stopped" in printed) == (75, True)


@pytest.mark.cluster
def test_a_folder_is_sent_along(jobs: str, folder: Path) -> None:
    at = ("--address", jobs, "--python", folder / "python")
    code, printed = slime(folder / "run.toml", *at, "--follow", "--working-dir", folder)
    assert code == 0, printed
    assert "'train', 'run.toml'" in printed


@pytest.mark.cluster
def test_a_cluster_that_asks_for_a_token_is_shown_the_users_own(tmp_path: Path) -> None:
    with_token, without = tmp_path / "one", tmp_path / "other"
    for home in (with_token, without):
        (home / ".ray").mkdir(parents=True)
    (with_token / ".ray/auth_token").write_text("0123456789abcdef" * 4)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"SPT_NOENV": "1"}
    with job_server({"HOME": str(with_token)}, inherited=plain) as url:
        told = {
            home: subprocess.run(
                [sys.executable, "-m", "slime_core", "submit", "status", "nobody", "--address", url],
                env=plain | {"HOME": str(home)},
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            ).stderr
            for home in (with_token, without)
        }
    assert told[with_token] == "error: no job 'nobody' on this cluster. Jobs: none\n"
    assert told[without].startswith(f"error: the server of Ray's jobs at {url} asks for a token: put the head's")
    assert told[without].count("\n") == 1


def test_a_server_that_is_not_there_is_refused(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        code, printed = slime(folder / "run.toml", "--address", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (code, "no server of Ray's jobs answers" in printed) == (2, True), printed
    assert "Traceback" not in printed


def test_a_run_file_that_cannot_be_read_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("num_rollout = \n")
    done = CliRunner().invoke(submit, [str(tmp_path / "run.toml"), "--address", "http://127.0.0.1:9"])
    assert isinstance(done.exception, ConfigError)
    assert "run.toml" in str(done.exception)


@table("flag", [["--generator.agent_fleet.token", "abc123"], ["--generator.agent-fleet.token=abc"]])
def test_a_secret_is_not_sent_in_a_jobs_command(folder: Path, flag: list[str]) -> None:
    done = CliRunner().invoke(submit, [str(folder / "run.toml"), "--address", "http://127.0.0.1:9", *flag])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith("generator.agent_fleet.token is a secret, and all who see the cluster")
    assert "abc" not in str(done.exception)


def test_the_name_of_a_secret_is_sent(folder: Path) -> None:
    flags = ["--generator.agent_fleet.token", "$env:TOKEN", "--generator.agent_fleet.lease_s=5"]
    done = CliRunner().invoke(submit, [str(folder / "run.toml"), "--address", "http://127.0.0.1:9", *flags])
    assert "no server of Ray's jobs answers" in str(done.exception)
