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

from slime_launcher_ray.guard import end_marked
from tests.faults.conftest import Command, Folder, Scene

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


def printing_to(log: Path) -> list[int]:
    """Processes that print to a worker's log and are led by nobody who does, too."""
    found = [pid for pid in _processes() if _output(pid) == log]
    return [pid for pid in found if _parent(pid) not in found]


def workers(folder: Folder) -> list[int]:
    """Processes of a run's workers, whoever has started them, and of what those have started."""
    return [pid for pid in _processes() if (log := _output(pid)) and log.parent == folder.path / "logs"]


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


def left(command: Command, folder: Folder) -> list[int]:
    """What is still there after a while: of its own cluster, or on one that it joined."""
    end = time.monotonic() + GONE_S
    while (found := [*command.living(), *workers(folder)]) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def trained(folder: Folder) -> Callable[[], bool]:
    return lambda: len(list((folder.path / "checkpoints").glob("rollout_*"))) >= 2


@pytest.fixture(scope="module")
def whole(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    code, output = scene.train("ray whole", *FLAGS).wait(PATIENCE_S)
    assert code == 0, output
    return scene.folder("ray whole")


def continued(scene: Scene, name: str, whole: Folder) -> None:
    """It ends as the undisturbed one."""
    code, output = scene.train(name, *FLAGS).wait(PATIENCE_S)
    assert code == 0, output
    assert scene.folder(name).results() == whole.results()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
def test_a_rank_that_falls_ends_the_run_which_goes_on(scene: Scene, whole: Folder, number: signal.Signals) -> None:
    name = f"ray rank {number.name}"
    folder = scene.folder(name)
    command = scene.train(name, *FLAGS, "--step-timeout-s", "20")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(printing_to(folder.path / "logs/trainer-0.log")[0], number)
    code, output = command.wait(PATIENCE_S)
    told = "trainer 0 did not answer" if number is signal.SIGSTOP else "trainer 0 on "
    assert (code, told in output) == (1, True), output
    assert left(command, folder) == []
    continued(scene, name, whole)


def test_a_run_that_may_restart_goes_on_by_itself(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray restart")
    command = scene.train("ray restart", *FLAGS, "--max-restarts", "2")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(printing_to(folder.path / "logs/trainer-0.log")[0], signal.SIGKILL)
    code, output = command.wait(PATIENCE_S)
    assert (code, output.count("restart 1 of 2")) == (0, 1), output
    assert "restart 2" not in output
    assert folder.results() == whole.results()
    assert left(command, folder) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_that_falls_is_replaced(scene: Scene, whole: Folder, number: signal.Signals) -> None:
    folder = scene.folder(f"ray engine {number.name}")
    command = scene.train(folder.path.name, *FLAGS, "--rollout-engine-timeout-s", "3")
    command.wait_until(trained(folder), PATIENCE_S)
    os.kill(printing_to(folder.path / "logs/engine-0.log")[0], number)
    code, output = command.wait(PATIENCE_S)
    assert code == 0, output
    assert "engine 0 is back" in output
    ours, theirs = folder.results(), whole.results()
    checkpoint = [name for name in theirs if name.startswith("checkpoints/")]
    assert checkpoint
    assert {name: ours[name] for name in checkpoint} == {name: theirs[name] for name in checkpoint}
    assert left(command, folder) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("what", ["raylet", "gcs_server"])
def test_a_cluster_that_loses_its_processes_ends_the_run_which_goes_on(
    scene: Scene, whole: Folder, what: str, number: signal.Signals
) -> None:
    name = f"ray {what} {number.name}"
    folder = scene.folder(name)
    command = scene.train(name, *FLAGS, REWARD_SECONDS="20")  # a loss is known after as much
    command.wait_until((folder.path / "metrics.jsonl").exists, PATIENCE_S)
    os.kill(running(command, what)[0], number)
    hangs = (what, number) == ("raylet", signal.SIGSTOP)  # which Ray itself waits for, for a minute
    code, output = command.wait(2 * LOST_S if hangs else LOST_S)
    assert code != 0, output
    assert "error" in output, f"exit code {code}: {output}"
    assert left(command, folder) == []
    continued(scene, name, whole)


def test_a_driver_that_is_killed_leaves_nothing_and_goes_on(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray driver")
    command = scene.train("ray driver", *FLAGS)
    command.wait_until(trained(folder), PATIENCE_S)
    command.signal_driver(signal.SIGKILL)
    command.process.wait()
    assert left(command, folder) == []
    continued(scene, "ray driver", whole)


def test_a_driver_that_is_stopped_goes_on_when_it_is_continued(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray stopped")
    command = scene.train("ray stopped", *FLAGS)
    command.wait_until(trained(folder), PATIENCE_S)
    command.signal_driver(signal.SIGSTOP)
    time.sleep(LOST_S / 2)  # longer than heads and workers wait for a word
    command.signal_driver(signal.SIGCONT)
    code, output = command.wait(PATIENCE_S)
    assert code == 0, output
    assert folder.results() == whole.results()
    assert left(command, folder) == []


def test_a_signal_to_all_reaches_the_driver_alone(scene: Scene, whole: Folder) -> None:
    folder = scene.folder("ray signal")
    command = scene.train("ray signal", *FLAGS)
    command.wait_until(trained(folder), PATIENCE_S)
    command.signal_all(signal.SIGTERM)
    code, output = command.wait(PATIENCE_S)
    assert code == 75, output
    assert "SIGTERM received" not in output  # Ray's own handler
    assert left(command, folder) == []
    continued(scene, "ray signal", whole)


@dataclass(frozen=True)
class Joined:
    """A cluster that runs already."""

    address: str
    head: int
    """Process that leads its own."""

    @property
    def environment(self) -> dict[str, str]:
        """Of a run that joins it."""
        return {"RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "disabled"}

    def gcs(self) -> int:
        """The process that is its head."""
        (found,) = [pid for pid in _processes() if _name(pid) == "gcs_server" and _parent(pid) == self.head]
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Joined]:
    """A cluster that runs already."""
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
    end_marked(f"{MARK}={os.getpid()}")
    shutil.rmtree(files, ignore_errors=True)


def test_two_runs_share_a_cluster_that_neither_ends(scene: Scene, whole: Folder, cluster: Joined) -> None:
    commands = {name: scene.train(name, *FLAGS, **cluster.environment) for name in ("ray one", "ray other")}
    for name, command in commands.items():
        code, output = command.wait(PATIENCE_S)
        assert code == 0, output
        assert scene.folder(name).results() == whole.results()
    again = scene.train("ray third", *FLAGS, **cluster.environment)
    assert again.wait(PATIENCE_S)[0] == 0


def test_a_driver_that_is_killed_leaves_nothing_on_the_cluster_that_it_joined(
    scene: Scene, whole: Folder, cluster: Joined
) -> None:
    folder = scene.folder("ray guest")
    command = scene.train("ray guest", *FLAGS, **cluster.environment)
    command.wait_until(trained(folder), PATIENCE_S)
    assert workers(folder)
    command.signal_driver(signal.SIGKILL)
    command.process.wait()
    assert left(command, folder) == []
    code, output = scene.train("ray guest", *FLAGS, **cluster.environment).wait(PATIENCE_S)
    assert code == 0, output
    assert folder.results() == whole.results()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_head_that_is_lost_ends_the_runs_of_its_cluster(
    scene: Scene, whole: Folder, cluster: Joined, number: signal.Signals
) -> None:
    name = f"ray head {number.name}"
    folder = scene.folder(name)
    command = scene.train(name, *FLAGS, **cluster.environment, REWARD_SECONDS="20")
    command.wait_until((folder.path / "metrics.jsonl").exists, PATIENCE_S)
    os.kill(cluster.gcs(), number)
    code, output = command.wait(LOST_S)
    assert code != 0, output
    assert "error" in output, output
    assert left(command, folder) == []
    continued(scene, name, whole)


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


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
