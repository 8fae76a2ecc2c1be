"""Runs on real SGLang servers behind a router that are killed, stopped, starved and cut off end as one left alone does.

Servers draw with the run's seeds, so that a sample that was lost or trained twice shows in every bit after it.
`make faults ARGS="-k sglang"` builds the servers' environments and runs it.
"""

import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_core.processes.limits import descendants
from tests.faults.conftest import Command, Folder, Scene
from tests.faults.figures import Figures, measured

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SLIME_SGLANG_PYTHON", ROOT / ".venv-sglang/bin/python"))
ROUTERS = Path(os.environ.get("SLIME_ROUTERS_PYTHON", ROOT / ".venv-routers/bin/python"))
LOSSY = Path(__file__).with_name("lossy_server.py")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.skipif(not PYTHON.exists() or not ROUTERS.exists(), reason="`make faults` builds what it needs"),
    pytest.mark.faults_full,
    pytest.mark.timeout(1800),
]

WITHIN_S = 600.0
GONE_S = 10.0
RECOVERY_S = 30.0
"""Seconds that a fall may cost, besides those that a server takes to start."""
LISTENS = "0A"
BEGINS = "Prefill batch"
"""What a server says of requests that are new to it."""
HTTP, SCHEDULER, ROUTER = "on_cpu.py", "sglang::scheduler", "smg::router"
GIVEN = {
    "engine": "sglang",
    "engine.sglang.python": PYTHON,
    "engine.sglang.router.use": "smg",
    "engine.sglang.router.python": ROUTERS,
    "engine.sglang.router.policy": "round_robin",
    "sglang-log-level": "info",
    "rollout-num-engines": 1,
    "num-rollout": 6,
    "rollout-max-response-len": 64,
}
REWARD = '''
import asyncio
import os
from pathlib import Path

from slime_core import RewardContext, Sample, Score


async def held(sample: Sample, ctx: RewardContext) -> Score:
    """Share of digits in the response; told when nobody holds it up any more."""
    while Path(os.environ["HOLD"]).exists():
        await asyncio.sleep(0.05)
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''


@dataclass
class Run:
    """A run on servers, seen from outside."""

    command: Command
    folder: Folder
    hold: Path
    """While this file is there, no reward is told, so that the run waits."""
    ports: frozenset[int] = frozenset()
    """Where its processes have listened."""

    @classmethod
    def start(cls, scene: Scene, name: str, **changes: object) -> "Run":
        """Start, or continue, that of a name."""
        reward = scene.root / "held.py"
        reward.write_text(REWARD)
        hold = scene.root / f"hold-{name}"
        given = {**GIVEN, "reward": f"{reward}:held", **changes}
        flags = [str(part) for key, value in given.items() for part in (f"--{key}", value)]
        command = scene.train(name, *flags, "--sglang-deterministic", HOLD=str(hold))
        return cls(command, scene.folder(name), hold)

    def wait(self) -> tuple[int, str]:
        """Exit code and output; nothing of it is left then."""
        code, output = self.command.wait(WITHIN_S)
        self.is_gone()
        return code, output

    def is_under_way(self, rows: int) -> None:
        """Until it has written so many rows of metrics; where its processes listen is noted."""
        self.wait_until(lambda: self.folder.rows_since(0) >= rows)
        sockets = self._sockets()
        self.ports |= {port for port, inode in listening().items() if inode in sockets}
        assert self.ports, "its servers listen"

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """While it runs."""
        self.command.wait_until(happened, WITHIN_S)

    def is_gone(self) -> None:
        """No process of it is left, and nobody listens where it did."""
        end = time.monotonic() + GONE_S
        while (left := self.command.living()) or self.ports & listening().keys():
            assert time.monotonic() < end, f"processes {left} and ports {self.ports & listening().keys()} are left"
            time.sleep(0.05)

    def says(self, text: str) -> Callable[[], bool]:
        """Whether its output has this in it."""
        return lambda: re.search(text, self.command.log.read_text()) is not None

    def need(self, what: str) -> int:
        """The process of a command line like this, which is there."""
        pid = self.find(what)
        assert pid is not None, f"{what} runs"
        return pid

    def find(self, what: str) -> int | None:
        """The process of a command line like this; None: there is none."""
        # A title may be written over the environment that tells whose a process is: descendants are looked at, too.
        for pid in sorted({*self.command.living(), *descendants(self.command.process.pid)}):
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if what in line:
                    return pid
        return None

    def generates(self, engine: int) -> Callable[[], bool]:
        """Whether a server has begun to answer requests that are new."""
        log = self.folder.path / f"logs/engine-{engine}.log"
        before = log.read_text().count(BEGINS)
        return lambda: log.read_text().count(BEGINS) > before

    def _sockets(self) -> set[str]:
        found = set()
        for pid in self.command.living():
            with suppress(OSError):
                for each in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        found.add(str(each.readlink()).removeprefix("socket:[").removesuffix("]"))
        return found


def listening() -> dict[int, str]:
    """Ports at which anybody listens, and the inode of the socket."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def port_of(pid: int) -> int:
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return int(arguments[arguments.index(b"--port") + 1])


def asked(port: int, path: str) -> bytes | None:
    """What a server answers; None: nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            body: bytes = reply.read()
            return body
    except OSError:
        return None


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    with measured(request.node.originalname.removeprefix("test_").replace("_", " ")) as made:
        yield made


@pytest.fixture(scope="module")
def whole(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    run = Run.start(scene, "sglang-whole")
    code, output = run.wait()
    assert code == 0, output
    return run.folder


def check(run: Run, whole: Folder, figures: Figures, tried: int) -> None:
    """It ends as the undisturbed one."""
    code, output = run.wait()
    assert code == 0, output
    figures.tried += tried
    run.folder.require_same(whole)
    figures.resumed += tried


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_sglang_server_falls_in_mid_generation(
    scene: Scene, whole: Folder, figures: Figures, number: signal.Signals
) -> None:
    run = Run.start(scene, f"sglang-server-{number.name}")
    run.is_under_way(1)
    old = run.find(HTTP)
    run.wait_until(run.generates(0))
    os.kill(run.need(SCHEDULER), number)
    fell = time.monotonic()
    run.wait_until(lambda: run.find(HTTP) not in (None, old))
    started = time.monotonic()
    port = port_of(run.need(HTTP))
    run.wait_until(lambda: asked(port, "/ready") is not None)
    ready = time.monotonic()
    run.wait_until(run.says("engine 0 is back"))
    recovery_s = started - fell + time.monotonic() - ready
    figures.what += f"; {number.name}: back {recovery_s:.0f} s after it and a start of {ready - started:.0f} s"
    assert recovery_s < RECOVERY_S
    assert not run.says(r"its 0 requests are retried")()
    check(run, whole, figures, 1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_router_of_sglang_servers_falls(
    scene: Scene, whole: Folder, figures: Figures, number: signal.Signals
) -> None:
    run = Run.start(scene, f"sglang-router-{number.name}")
    run.is_under_way(1)
    run.wait_until(lambda: run.find(ROUTER) is not None)
    run.wait_until(run.generates(0))
    router = run.need(ROUTER)
    os.kill(router, number)
    run.hold.touch()
    run.wait_until(run.says("the router is back"))
    assert run.need(ROUTER) != router
    run.hold.unlink()
    check(run, whole, figures, 1)


@pytest.mark.parametrize("kind", ["distributed", "tensor"])
def test_a_bucket_for_sglang_servers_is_lost(
    scene: Scene, whole: Folder, figures: Figures, tmp_path: Path, kind: str
) -> None:
    lost, lossy = tmp_path / "lost", tmp_path / "venv/bin/python"
    lossy.parent.mkdir(parents=True)
    lossy.write_text(f'#!/bin/sh\nexec {sys.executable} {LOSSY} {PYTHON} {lost} /update_weights_from_{kind} "$@"\n')
    lossy.chmod(0o755)
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "venv/lib/python3.11/site-packages/sglang-0.5.23.dist-info").mkdir(parents=True)
    by = {"transport": kind, f"transport.{kind}.timeout_s": 10, f"transport.{kind}.bucket_mb": 0.5}
    run = Run.start(scene, f"sglang-bucket-{kind}", **by, **{"engine.sglang.python": lossy})
    run.wait_until(lost.exists)
    run.wait_until(run.says("engine 0 is back"))
    check(run, whole, figures, 1)


def test_the_disk_of_a_run_on_sglang_servers_is_full(
    scene: Scene,
    whole: Folder,
    figures: Figures,
    tiny_disk: Path,
    remount: Callable[[Path, str], None],
) -> None:
    remount(tiny_disk, "64m")
    (tiny_disk / "run").mkdir()
    (scene.root / "sglang-disk").symlink_to(tiny_disk / "run")
    run = Run.start(scene, "sglang-disk")
    run.is_under_way(3)
    run.wait_until(run.generates(0))
    room = os.statvfs(tiny_disk)
    remount(tiny_disk, f"{(room.f_blocks - room.f_bfree) * room.f_frsize}")
    code, output = run.wait()
    assert code not in (0, 75), output
    assert "No space left" in output or "the disk is full" in output, output
    remount(tiny_disk, "64m")
    check(Run.start(scene, "sglang-disk"), whole, figures, 1)


def test_two_runs_with_sglang_servers_share_a_host(scene: Scene, whole: Folder, figures: Figures) -> None:
    runs = [Run.start(scene, f"sglang-{name}") for name in ("one", "other")]
    for run in runs:
        run.is_under_way(1)
    assert runs[0].ports.isdisjoint(runs[1].ports)
    for run in runs:
        check(run, whole, figures, 1)


@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_the_driver_of_sglang_servers_is_killed(scene: Scene, whole: Folder, figures: Figures, launcher: str) -> None:
    name = f"sglang-driver-{launcher}"
    run = Run.start(scene, name, launcher=launcher)
    run.is_under_way(3)
    run.wait_until(run.generates(0))
    run.command.signal_driver(signal.SIGKILL)
    run.command.process.wait()
    run.is_gone()
    check(Run.start(scene, name, launcher=launcher), whole, figures, 1)
