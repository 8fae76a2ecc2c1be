"""Runs on real SGLang servers behind a router that are killed and stopped end as one left alone does.

Servers draw with the run's seeds, so that a sample that was lost or trained twice shows in every bit after it.
`make faults ARGS="-k sglang"` builds the servers' environments and runs it.
"""

import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_core.processes.limits import descendants
from tests.faults.conftest import Command, Folder, Scene, require_gone
from tests.faults.figures import measured

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SLIME_SGLANG_PYTHON", ROOT / ".venv-sglang/bin/python"))
ROUTERS = Path(os.environ.get("SLIME_ROUTERS_PYTHON", ROOT / ".venv-routers/bin/python"))

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.skipif(not PYTHON.exists() or not ROUTERS.exists(), reason="`make faults` builds what it needs"),
    pytest.mark.faults_full,
    pytest.mark.timeout(1800),
]

WITHIN_S = 600.0
BEGINS = "Prefill batch"
"""What a server says of requests that are new to it."""
SCHEDULER, ROUTER = "sglang::scheduler", "smg::router"
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
        """Exit code and output; no process of it is left then."""
        code, output = self.command.wait(WITHIN_S)
        require_gone(self.command)
        return code, output

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """While it runs."""
        self.command.wait_until(happened, WITHIN_S)

    def says(self, text: str) -> Callable[[], bool]:
        """Whether its output has this in it."""
        return lambda: re.search(text, self.command.log.read_text()) is not None

    def process(self, title: str) -> int:
        """The process with a title, which runs."""
        # A title may overwrite the environment that marks the run's processes, so its descendants count, too.
        for pid in sorted({*self.command.living(), *descendants(self.command.process.pid)}):
            with suppress(OSError):
                if title.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                    return pid
        raise AssertionError(f"{title} does not run")

    def generates(self, engine: int) -> Callable[[], bool]:
        """Whether a server has begun to answer requests that are new."""
        log = self.folder.path / f"logs/engine-{engine}.log"
        before = log.read_text().count(BEGINS)
        return lambda: log.read_text().count(BEGINS) > before


@pytest.fixture(scope="module")
def whole(scene: Scene) -> Folder:
    """A run that nobody disturbed."""
    run = Run.start(scene, "sglang-whole")
    code, output = run.wait()
    assert code == 0, output
    return run.folder


@pytest.mark.parametrize(
    ("program", "number"),
    [(each, number) for each in (SCHEDULER, ROUTER) for number in (signal.SIGKILL, signal.SIGSTOP)]
    + [("driver", signal.SIGKILL)],
)
def test_a_run_whose_processes_fall_ends_like_one_that_was_not_disturbed(
    scene: Scene, whole: Folder, program: str, number: signal.Signals
) -> None:
    name = f"sglang-{program.replace(':', '-')}-{number.name}"
    with measured(f"{program} of a run on SGLang's servers, {number.name}") as figures:
        run = Run.start(scene, name)
        run.wait_until(lambda: run.folder.rows_since(0) >= 1)
        run.wait_until(run.generates(0))
        figures.tried += 1
        if program == "driver":
            run.command.signal_driver(number)
            run.command.process.wait()
            require_gone(run.command)
            run = Run.start(scene, name)
        else:
            fallen, back = run.process(program), "the router" if program == ROUTER else "engine 0"
            os.kill(fallen, number)
            run.hold.touch()
            run.wait_until(run.says(f"{back} is back"))
            assert run.process(program) != fallen
            run.hold.unlink()
        code, output = run.wait()
        assert code == 0, output
        run.folder.require_same(whole)
        figures.resumed += 1
