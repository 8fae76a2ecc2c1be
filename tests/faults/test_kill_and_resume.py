"""Runs that are killed, stopped or damaged end with what an undisturbed run ends with, bit for bit."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import require_gone
from tests.faults.figures import ALL, WHOLE, Figures

if TYPE_CHECKING:
    from tests.faults.conftest import Folder, Scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")

STOPPED, INTERRUPTED = 75, 130
RUNS = (10, *[4] * 19) if WHOLE else (10,)
"""Kills of each run."""
START_S, ROWS_S = 4.0, 0.3
"""Seconds after its start, and after a row of metrics, in which a run is killed."""


def has_rows(folder: Folder, started: float, count: int) -> bool:
    return folder.rows_since(started) >= count


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_runs_killed_at_random_instants_end_like_one_that_was_not(scene: Scene, undisturbed: Folder) -> None:
    figures, began = Figures("SIGKILL at random instants, whole runs of the tiny model"), time.monotonic()
    for number, kills in enumerate(RUNS):
        draw, folder, commands = random.Random(11 + number), scene.folder(f"killed-{number}"), []
        for kill in range(kills):
            started = time.time()
            commands.append(command := scene.train(folder.path.name))
            if kill % 3:  # else while it starts
                command.wait_until(partial(has_rows, folder, started, draw.randint(1, 3)))
            time.sleep(draw.uniform(0, ROWS_S if kill % 3 else START_S))
            command.signal_driver(signal.SIGKILL)
            assert command.wait()[0] == -signal.SIGKILL, "it ended before it was killed"
        commands.append(last := scene.train(folder.path.name))
        code, output = last.wait()
        assert code == 0, output
        folder.require_same(undisturbed)
        require_gone(*commands)
        figures.tried += kills
        figures.resumed += kills
        shutil.rmtree(folder.path)
    figures.seconds = time.monotonic() - began
    ALL.append(figures)


def test_stopped_while_workers_start_and_then_at_work_it_saves_and_resumes(scene: Scene, undisturbed: Folder) -> None:
    folder = scene.folder("stopped")
    first = scene.train("stopped")
    first.wait_until(lambda: "loading the model" in first.log.read_text())
    # A terminal's Ctrl-C reaches the workers too, and so does a service manager's SIGTERM.
    first.signal_all(signal.SIGINT)
    code, output = first.wait()
    assert code == STOPPED, output
    assert folder.newest().name == "rollout_000000"
    require_gone(first)

    started = time.time()
    second = scene.start("resume", str(folder.path))
    second.wait_until(lambda: folder.rows_since(started) >= 2)
    second.signal_all(signal.SIGTERM)
    code, output = second.wait()
    assert code == STOPPED, output
    assert f"slime resume {folder.path}" in output
    done = folder.metrics()[-1]["rollout_id"]
    assert int(folder.newest().name.removeprefix("rollout_")) >= done

    last = scene.start("resume", str(folder.path))
    code, output = last.wait()
    assert code == 0, output
    folder.require_same(undisturbed)
    assert any(name.endswith("optim/adamw.safetensors") for name in folder.results())
    require_gone(second, last)


def test_ctrl_c_twice_stops_at_once_and_keeps_the_newest_checkpoint(scene: Scene, undisturbed: Folder) -> None:
    folder = scene.copy(undisturbed, "impatient")
    before, last = sorted((folder.path / "checkpoints").iterdir())[-2:]
    shutil.rmtree(last)
    command = scene.start("resume", str(folder.path), REWARD_SECONDS="100")
    command.wait_until(lambda: "continuing after" in command.log.read_text())
    command.signal_all(signal.SIGINT)
    command.wait_until(lambda: "press Ctrl-C again" in command.log.read_text())
    command.signal_all(signal.SIGINT)
    code, output = command.wait()
    assert code == INTERRUPTED, output
    assert folder.newest() == before
    require_gone(command)
