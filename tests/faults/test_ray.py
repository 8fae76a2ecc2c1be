"""A run under Ray whose rank, engine, raylet or head is killed or stopped; and two runs on one cluster.

What ends with an error says so, leaves nothing running, and goes on from its newest checkpoint to what an undisturbed
run has.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Command, Folder, Scene

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.faults_full,
    pytest.mark.timeout(900),
]

GONE_S = 20.0
FLAGS = ("--launcher", "ray", "--num-rollout", "8")


def printing_to(command: Command, log: Path) -> list[int]:
    """Processes of a run that print to a worker's log and are led by nobody who does, too."""
    found = [pid for pid in command.living() if _output(pid) == log]
    return [pid for pid in found if _parent(pid) not in found]


def running(command: Command, what: str) -> list[int]:
    """Processes of a run whose command line has this in it."""
    found = []
    for pid in command.living():
        try:
            if what in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].rpartition("/")[2]:
                found.append(pid)
        except OSError:
            continue
    return found


def left(command: Command) -> list[int]:
    end = time.monotonic() + GONE_S
    while (found := command.living()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def trained(folder: Folder) -> Callable[[], bool]:
    return lambda: len(list((folder.path / "checkpoints").glob("rollout_*"))) >= 2


@pytest.fixture(scope="module")
def whole(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    code, output = scene.train("ray whole", *FLAGS).wait()
    assert code == 0, output
    return scene.folder("ray whole")


def continued(scene: Scene, name: str, whole: Folder) -> None:
    """It ends as the undisturbed one."""
    code, output = scene.train(name, *FLAGS).wait()
    assert code == 0, output
    assert scene.folder(name).results() == whole.results()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_dies_ends_the_run_which_goes_on(scene: Scene, whole: Folder, number: signal.Signals) -> None:
    name = f"ray rank {number.name}"
    folder = scene.folder(name)
    command = scene.train(name, *FLAGS)
    command.wait_until(trained(folder))
    os.kill(printing_to(command, folder.path / "logs/trainer-0.log")[0], number)
    code, output = command.wait()
    assert (code, "trainer 0 on " in output) == (1, True), output
    assert left(command) == []
    continued(scene, name, whole)


def test_a_run_that_may_restart_goes_on_by_itself(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray restart")
    command = scene.train("ray restart", *FLAGS, "--max-restarts", "2")
    command.wait_until(trained(folder))
    os.kill(printing_to(command, folder.path / "logs/trainer-0.log")[0], signal.SIGKILL)
    code, output = command.wait()
    assert (code, output.count("restart 1 of 2")) == (0, 1), output
    assert "restart 2" not in output
    assert folder.results() == whole.results()
    assert left(command) == []


def test_an_engine_that_dies_is_replaced(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray engine")
    command = scene.train("ray engine", *FLAGS)
    command.wait_until(trained(folder))
    os.kill(printing_to(command, folder.path / "logs/engine-0.log")[0], signal.SIGKILL)
    code, output = command.wait()
    assert code == 0, output
    assert "engine 0 is back" in output
    ours, theirs = folder.results(), whole.results()
    checkpoint = [name for name in theirs if name.startswith("checkpoints/")]
    assert checkpoint
    assert {name: ours[name] for name in checkpoint} == {name: theirs[name] for name in checkpoint}
    assert left(command) == []


@pytest.mark.parametrize("what", ["raylet", "gcs_server"])
def test_a_cluster_that_loses_its_processes_ends_the_run_which_goes_on(scene: Scene, whole: Folder, what: str) -> None:
    name = f"ray {what}"
    folder = scene.folder(name)
    command = scene.train(name, *FLAGS, REWARD_SECONDS="20")  # a loss is known after as much
    command.wait_until((folder.path / "metrics.jsonl").exists)
    os.kill(running(command, what)[0], signal.SIGKILL)
    code, output = command.wait()
    assert code != 0, output
    assert "error" in output, output
    assert left(command) == []
    continued(scene, name, whole)


def test_a_driver_that_is_killed_leaves_nothing_and_goes_on(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray driver")
    command = scene.train("ray driver", *FLAGS)
    command.wait_until(trained(folder))
    command.signal_driver(signal.SIGKILL)
    command.process.wait()
    assert left(command) == []
    continued(scene, "ray driver", whole)


def test_a_signal_to_all_reaches_the_driver_alone(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray signal")
    command = scene.train("ray signal", *FLAGS)
    command.wait_until(trained(folder))
    command.signal_all(signal.SIGTERM)
    code, output = command.wait()
    assert code == 75, output
    assert "SIGTERM received" not in output  # Ray's own handler
    assert left(command) == []
    continued(scene, "ray signal", whole)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster that runs already."""
    ray = Path(sys.executable).with_name("ray")
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    arguments = ["--head", "--port=0", "--num-cpus=8", "--include-dashboard=false", f"--temp-dir=/tmp/r{os.getpid()}"]
    process = subprocess.Popen(
        [ray, "start", "--block", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "--address=" in line)
    yield line.partition("--address='")[2].partition("'")[0]
    process.terminate()
    process.stdout.close()
    process.wait()


def test_two_runs_share_a_cluster_that_neither_ends(scene: Scene, whole: Folder, cluster: str) -> None:
    joined = {"RAY_ADDRESS": cluster, "RAY_AUTH_MODE": "disabled"}
    commands = {name: scene.train(name, *FLAGS, **joined) for name in ("ray one", "ray other")}
    for name, command in commands.items():
        code, output = command.wait()
        assert code == 0, output
        assert scene.folder(name).results() == whole.results()
    again = scene.train("ray third", *FLAGS, **joined)
    assert again.wait()[0] == 0


def _output(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
