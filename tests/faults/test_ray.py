"""A run under Ray whose rank, engine, raylet, head or driver is killed or stopped; and two runs on one cluster.

What ends with an error says so, leaves nothing running, and goes on from its newest checkpoint to what an undisturbed
run has.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_launcher_ray.guard import kill_marked
from tests.faults.conftest import Command, Folder, Scene, output_of, parent_of, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.faults_full,
    pytest.mark.timeout(1800),
]

PATIENCE_S = 600.0
"""A cluster takes seconds to start, and minutes where others use all cores."""
GONE_S = 10.0
MARK = "SLIME_RAY_FAULTS"
LOST_S = 60.0
"""Within which a run ends whose cluster is lost."""
FLAGS = ("--launcher", "ray", "--num-rollout", "8")
KILL, SEGV, STOP = signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP


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


def require_whole(scene: Scene, name: str, whole: Folder, **environment: str) -> None:
    """Continue a run, which ends as the undisturbed one."""
    code, output = scene.train(name, *FLAGS, **environment).wait(PATIENCE_S)
    assert code == 0, output
    assert scene.folder(name).results() == whole.results()


@pytest.mark.parametrize(
    ("victim", "number", "code", "said"),
    [
        pytest.param(worker("trainer-0.log"), KILL, 1, "trainer 0 on ", id="rank killed"),
        pytest.param(worker("trainer-0.log"), SEGV, 1, "trainer 0 on ", id="rank crashed"),
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


@pytest.mark.parametrize("number", [KILL, STOP])
def test_an_engine_that_falls_is_replaced(scene: Scene, whole: Folder, number: signal.Signals) -> None:
    folder = scene.folder(f"ray engine {number.name}")
    command = scene.train(folder.path.name, *FLAGS, "--rollout-engine-timeout-s", "3")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(worker("engine-0.log")(command, folder), number)
    code, output = ended(command, folder)
    assert (code, "engine 0 is back" in output) == (0, True), output
    ours, theirs = folder.results(), whole.results()
    checkpoint = [name for name in theirs if name.startswith("checkpoints/")]
    assert checkpoint
    assert {name: ours[name] for name in checkpoint} == {name: theirs[name] for name in checkpoint}


def test_a_driver_that_is_stopped_goes_on_when_it_is_continued(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray stopped")
    command = scene.train("ray stopped", *FLAGS)
    command.wait_until(trained(folder), PATIENCE_S)
    command.signal_driver(STOP)
    time.sleep(LOST_S / 2)  # longer than heads and workers wait for a message
    command.signal_driver(signal.SIGCONT)
    code, output = ended(command, folder)
    assert code == 0, output
    assert folder.results() == whole.results()


@dataclass(frozen=True)
class Joined:
    """A cluster that runs already, and the process that leads it."""

    address: str
    head: int

    @property
    def environment(self) -> dict[str, str]:
        """Of a run that joins it."""
        return {"RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "disabled"}

    def gcs(self, command: Command, folder: Folder) -> int:
        """The process that is its head."""
        return next(pid for pid in processes() if "gcs_server" in _program_of(pid) and parent_of(pid) == self.head)


@pytest.fixture
def cluster() -> Iterator[Joined]:
    ray = Path(sys.executable).with_name("ray")
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    files = Path(tempfile.mkdtemp(prefix="rf-"))  # short: the path of a socket has to be
    arguments = ["--head", "--port=0", "--num-cpus=8", "--include-dashboard=false", f"--temp-dir={files}"]
    process = subprocess.Popen(
        [ray, "start", "--block", *arguments],
        env=environment | {MARK: str(os.getpid()), "SPT_NOENV": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "--address=" in line)
    yield Joined(line.partition("--address='")[2].partition("'")[0], process.pid)
    process.terminate()
    process.stdout.close()
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    kill_marked(f"{MARK}={os.getpid()}")
    shutil.rmtree(files, ignore_errors=True)


@pytest.mark.parametrize("number", [KILL, STOP])
@pytest.mark.parametrize("what", ["raylet", "gcs_server", "head of a joined cluster"])
def test_a_cluster_that_loses_its_processes_ends_the_run_which_goes_on(
    scene: Scene, whole: Folder, request: pytest.FixtureRequest, what: str, number: signal.Signals
) -> None:
    joined: Joined | None = request.getfixturevalue("cluster") if what.startswith("head") else None
    victim = joined.gcs if joined else program(what)
    folder = scene.folder(f"ray {what} {number.name}")
    environment = joined.environment if joined else {}
    command = scene.train(folder.path.name, *FLAGS, **environment, REWARD_SECONDS="20")  # a loss is known after as much
    command.wait_until((folder.path / "metrics.jsonl").exists, PATIENCE_S)
    os.kill(victim(command, folder), number)
    hangs = (what, number) == ("raylet", STOP)  # which Ray itself waits for, for a minute
    code, output = ended(command, folder, 2 * LOST_S if hangs else LOST_S)
    assert code != 0, output
    assert "error" in output, f"exit code {code}: {output}"
    require_whole(scene, folder.path.name, whole)


def test_two_runs_share_a_cluster_that_neither_ends(scene: Scene, whole: Folder, cluster: Joined) -> None:
    commands = {name: scene.train(name, *FLAGS, **cluster.environment) for name in ("ray one", "ray other")}
    for name, command in commands.items():
        code, output = command.wait(PATIENCE_S)
        assert code == 0, output
        assert scene.folder(name).results() == whole.results()
    require_whole(scene, "ray third", whole, **cluster.environment)


def test_a_driver_that_is_killed_leaves_nothing_on_the_cluster_that_it_joined(
    scene: Scene, whole: Folder, cluster: Joined
) -> None:
    folder = scene.folder("ray guest")
    command = scene.train("ray guest", *FLAGS, **cluster.environment)
    command.wait_until(trained(folder), PATIENCE_S)
    assert workers_of(folder)
    command.signal_driver(KILL)
    ended(command, folder)
    require_whole(scene, "ray guest", whole, **cluster.environment)


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].rpartition("/")[2]
    except OSError:
        return ""
