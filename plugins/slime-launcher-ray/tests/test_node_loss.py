"""A run on a cluster of several nodes. Two nodes die: the engine's node, then a rank's node."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from process_files import name, output, parent, processes
from ray_clusters import OPEN, nodes
from small_run import small_run

pytestmark = pytest.mark.cluster

WAIT_S = 180.0
HELD = '''
import time
from pathlib import Path

from slime_core import RewardContext, Sample, Score


def digits(sample: Sample, ctx: RewardContext) -> Score:
    """Share of digits in the response; waits while the file `hold` exists."""
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.05)
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A head without room for workers, and four nodes with room for two workers each."""
    for variable, value in OPEN.items():
        monkeypatch.setenv(variable, value)
    with nodes({"num_cpus": 0}, *[{"num_cpus": 2}] * 4) as cluster:
        yield cluster.address


def kill_node_of(log: Path) -> None:
    """Kill the raylet of the worker that prints to this file."""
    (worker,) = (pid for pid in processes() if output(pid) == log and name(parent(pid)) == "raylet")
    os.kill(parent(worker), signal.SIGKILL)


def test_run_survives_node_loss(address: str, tmp_path: Path) -> None:
    run_file, run, log = small_run(tmp_path), tmp_path / "run", tmp_path / "printed.txt"
    (tmp_path / "reward.py").write_text(HELD)
    flags: list[str | Path] = [
        "--save",
        run,
        "--num-rollout",
        "6",
        "--no-progress",
        "--launcher",
        "ray",
        "--max-restarts",
        "1",
    ]
    with log.open("w") as printed:
        driver = subprocess.Popen(
            [sys.executable, "-m", "slime_core", "train", run_file, *flags],
            env=os.environ | {"RAY_ADDRESS": address},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )

    def until(happened: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not happened():
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    try:
        until((run / "checkpoints/rollout_000001").is_dir)
        (tmp_path / "hold").touch()
        kill_node_of(run / "logs/engine-0.log")
        until(lambda: "engine 0 is back" in log.read_text())
        kill_node_of(run / "logs/trainer-0.log")
        until(lambda: "restart 1 of 1" in log.read_text())
        (tmp_path / "hold").unlink()
        assert driver.wait(WAIT_S) == 0, log.read_text()
    finally:
        driver.kill()
        driver.wait()
    assert "trainer 0 on " in log.read_text() or "trainer 1 on " in log.read_text()
    assert (run / "checkpoints/rollout_000006").is_dir()
