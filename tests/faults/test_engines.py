"""Real runs on several engines whose processes are killed or stopped end with what an undisturbed run ends with."""

from __future__ import annotations

import re
import signal
import sys
import time
from contextlib import suppress
from os import kill
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import output_of, require_gone

if TYPE_CHECKING:
    from tests.faults.conftest import Command, Folder, Scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of engines in /proc")

ENGINES = 3
FLAGS = ("--rollout-num-engines", str(ENGINES), "--engine.local.workers", "1")
WITHIN_S = 60.0


def workers_of(command: Command) -> dict[int, int]:
    """Process of each living engine, by number: the one whose output goes to its log."""
    logs = {pid: re.search(r"/engine-(\d)-0\.log$", str(output_of(pid))) for pid in command.living()}
    return {int(match[1]): pid for pid, match in logs.items() if match}


@pytest.mark.parametrize(
    "hurt",
    [
        pytest.param({1: signal.SIGKILL, 0: signal.SIGSTOP}, id="one killed, one stopped"),
        pytest.param(dict.fromkeys(range(ENGINES), signal.SIGKILL), id="all killed", marks=pytest.mark.faults_full),
        pytest.param(dict.fromkeys(range(ENGINES), signal.SIGSTOP), id="all stopped", marks=pytest.mark.faults_full),
    ],
)
def test_a_run_whose_engines_are_killed_or_stopped_ends_like_one_that_was_not_disturbed(
    scene: Scene, undisturbed: Folder, hurt: dict[int, signal.Signals]
) -> None:
    folder = scene.folder("engines-" + "-".join(number.name for number in hurt.values()))
    started = time.time()
    command = scene.train(folder.path.name, *FLAGS, "--rollout-engine-timeout-s", "3")
    command.wait_until(lambda: folder.rows_since(started) >= 3)
    for engine, pid in workers_of(command).items():
        if engine in hurt:
            kill(pid, hurt[engine])
    code, output = command.wait()
    assert code == 0, output
    for engine, number in hurt.items():
        cause = "died" if number is signal.SIGKILL else "hung"
        assert re.search(rf"engine {engine} failed, its \d+ requests .* Cause: {cause}: ", output), output
    folder.require_same(undisturbed)
    require_gone(command)


@pytest.mark.faults_full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_engines_that_fall_again_and_again_cost_no_sample(
    scene: Scene, undisturbed: Folder, number: signal.Signals
) -> None:
    folder = scene.folder(f"falling-{number.name}")
    command = scene.train(folder.path.name, *FLAGS, "--rollout-engine-timeout-s", "3")
    hurt: set[int] = set()
    while command.process.poll() is None:
        _hurt_one(command, number, hurt)
        time.sleep(1.0)
    code, output = command.wait()
    assert code == 0, output
    assert len(hurt) >= 2
    folder.require_same(undisturbed)


@pytest.mark.faults_full
def test_a_run_without_engines_stops_within_a_minute_and_says_why(scene: Scene) -> None:
    folder = scene.folder("no-engines")
    started = time.time()
    command = scene.train("no-engines", *FLAGS)
    command.wait_until(lambda: folder.rows_since(started) >= 3)
    began = time.monotonic()
    while command.process.poll() is None:
        _kill_all(command)
        time.sleep(0.05)
    code, output = command.wait()
    assert time.monotonic() - began < WITHIN_S
    assert code == 1, output
    assert "no engine has served for 40 s, and none could be restarted" in output
    for engine in range(ENGINES):
        assert re.search(rf"engine {engine}: died: ", output)
    assert "slime resume" in output
    assert folder.newest().name >= "rollout_000002"


@pytest.mark.faults_full
def test_what_a_run_waits_for_is_named_within_half_a_minute(scene: Scene) -> None:
    command = scene.train("waiting", *FLAGS, REWARD_SECONDS="1000")
    command.wait_until(lambda: "waiting for reward" in command.log.read_text())
    told = command.log.read_text()
    silence = re.search(r"no sample ended for (\d+) s; waiting for reward", told)
    named = re.search(r"sample 0 of group .*:e0:r\d+:d\d+, (\d+) s in reward .* \(generator single_turn\)", told)
    assert silence, told
    assert named, told
    assert max(int(silence[1]), int(named[1])) <= WITHIN_S / 2  # by the run's own clock: it starts when all wait
    command.signal_driver(signal.SIGKILL)
    command.wait()


def _hurt_one(command: Command, number: signal.Signals, hurt: set[int]) -> None:
    fresh = {engine: pid for engine, pid in workers_of(command).items() if pid not in hurt}
    if len(fresh) > 1:  # one goes on serving
        victim = fresh[min(fresh)]
        hurt.add(victim)
        with suppress(ProcessLookupError):
            kill(victim, number)


def _kill_all(command: Command) -> None:
    for pid in workers_of(command).values():
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
