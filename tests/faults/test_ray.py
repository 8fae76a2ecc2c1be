"""A run under Ray whose rank, engine, raylet, head or driver is killed or stopped.

What ends with an error says so, leaves nothing running, and goes on from its newest checkpoint to what an undisturbed
run has.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Command, Folder, Scene, output_of, parent_of, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.faults_full,
    pytest.mark.timeout(1800),
]

PATIENCE_S = 600.0
"""A cluster takes seconds to start, and minutes where others use all cores."""
GONE_S = 10.0
LOST_S = 60.0
"""Within which a run ends whose cluster is lost."""
FLAGS = ("--launcher", "ray", "--num-rollout", "8")
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def worker(log: str) -> Callable[[Command, Folder], int]:
    """Finds the process of a worker: it prints to this log, and its parent does not."""

    def find(command: Command, folder: Folder) -> int:
        found = [pid for pid in processes() if output_of(pid) == folder.path / "logs" / log]
        return next(pid for pid in found if parent_of(pid) not in found)

    return find


def program(name: str) -> Callable[[Command, Folder], int]:
    """Finds a process of Ray among those of a run."""

    def find(command: Command, folder: Folder) -> int:
        return next(pid for pid in command.living() if name in _program_of(pid))

    return find


def driver(command: Command, folder: Folder) -> int:
    return command.process.pid


def trained(folder: Folder) -> Callable[[], bool]:
    return lambda: len(list((folder.path / "checkpoints").glob("rollout_*"))) >= 2


def workers_of(folder: Folder) -> list[int]:
    """Processes of a run's workers, and what they started."""
    return [pid for pid in processes() if (log := output_of(pid)) and log.parent == folder.path / "logs"]


def ended(command: Command, folder: Folder, within_s: float = PATIENCE_S) -> tuple[int, str]:
    """Exit code and output of a run that leaves nothing, on its own cluster or on one that it joined."""
    code, output = command.wait(within_s)
    end = time.monotonic() + GONE_S
    while left := [*command.living(), *workers_of(folder)]:
        assert time.monotonic() < end, f"processes {left} are left:\n{output}"
        time.sleep(0.05)
    return code, output


@pytest.fixture(scope="module")
def whole(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    code, output = scene.train("ray whole", *FLAGS).wait(PATIENCE_S)
    assert code == 0, output
    return scene.folder("ray whole")


def require_whole(scene: Scene, name: str, whole: Folder) -> None:
    """Continue a run, which ends as the undisturbed one."""
    code, output = scene.train(name, *FLAGS).wait(PATIENCE_S)
    assert code == 0, output
    assert scene.folder(name).results() == whole.results()


@pytest.mark.parametrize(
    ("victim", "number", "code", "said"),
    [
        pytest.param(worker("trainer-0.log"), KILL, 1, "trainer 0 on ", id="rank killed"),
        pytest.param(worker("trainer-0.log"), STOP, 1, "trainer 0 did not answer", id="rank stopped"),
        pytest.param(driver, KILL, -KILL, "", id="driver killed"),
        pytest.param(driver, signal.SIGTERM, 75, "slime resume", id="signal to all"),
    ],
)
def test_a_run_that_ends_goes_on(
    scene: Scene,
    whole: Folder,
    request: pytest.FixtureRequest,
    victim: Callable[[Command, Folder], int],
    number: signal.Signals,
    code: int,
    said: str,
) -> None:
    folder = scene.folder(request.node.callspec.id)
    command = scene.train(folder.path.name, *FLAGS, "--step-timeout-s", "20")
    command.wait_until(trained(folder), PATIENCE_S)
    if number is signal.SIGTERM:
        command.signal_all(number)
    else:
        os.kill(victim(command, folder), number)
    found, output = ended(command, folder)
    assert (found, said in output) == (code, True), output
    assert "SIGTERM received" not in output  # Ray's own handler
    require_whole(scene, folder.path.name, whole)


def test_a_run_that_may_restart_goes_on_by_itself(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray restart")
    command = scene.train("ray restart", *FLAGS, "--max-restarts", "2")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(worker("trainer-0.log")(command, folder), KILL)
    code, output = ended(command, folder)
    assert (code, output.count("restart 1 of 2"), "restart 2" in output) == (0, 1, False), output
    assert folder.results() == whole.results()


def test_an_engine_that_is_killed_is_replaced(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray engine")
    command = scene.train(folder.path.name, *FLAGS, "--rollout-engine-timeout-s", "3")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(worker("engine-0.log")(command, folder), KILL)
    code, output = ended(command, folder)
    assert (code, "engine 0 is back" in output) == (0, True), output
    ours, theirs = folder.results(), whole.results()
    checkpoint = [name for name in theirs if name.startswith("checkpoints/")]
    assert checkpoint
    assert {name: ours[name] for name in checkpoint} == {name: theirs[name] for name in checkpoint}


@pytest.mark.parametrize("number", [KILL, STOP])
@pytest.mark.parametrize("what", ["raylet", "gcs_server"])
def test_a_cluster_that_loses_its_processes_ends_the_run_which_goes_on(
    scene: Scene, whole: Folder, what: str, number: signal.Signals
) -> None:
    """Clusters that a run joins, and the loss of a node, are told by slime-launcher-ray's tests."""
    folder = scene.folder(f"ray {what} {number.name}")
    command = scene.train(folder.path.name, *FLAGS, REWARD_SECONDS="20")  # a loss is known after as much
    command.wait_until((folder.path / "metrics.jsonl").exists, PATIENCE_S)
    os.kill(program(what)(command, folder), number)
    hangs = (what, number) == ("raylet", STOP)  # which Ray itself waits for, for a minute
    code, output = ended(command, folder, 2 * LOST_S if hangs else LOST_S)
    assert code != 0, output
    assert "error" in output, f"exit code {code}: {output}"
    require_whole(scene, folder.path.name, whole)


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].rpartition("/")[2]
    except OSError:
        return ""
