"""A worker that Ray ends since its node has too little memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

START = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ray_live import Live
from slime_core.errors import WorkerError
from slime_core.roles import WorkerGroupSpec
from slime_launcher_ray.settings import RaySettings

async def used(live):
    group = await live.launcher.start(WorkerGroupSpec("kit", 1, "slime_testing.launched:Worker", {"start": 1}))
    await group.call("sleep", [100.0])

live = Live(Path("logs"), RaySettings())
try:
    live.run(used(live))
except WorkerError as error:
    print("told:", error)
live.run(live.launcher.close())
"""
LITTLE = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "1000"}
"""A cluster that takes a hundredth of the memory for all there is: whatever machine runs this uses more."""


def test_a_worker_that_ray_ends_for_want_of_memory_is_told_of_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, str(Path(__file__).parent)],
        cwd=tmp_path,
        env=os.environ | LITTLE,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "told: kit" in done.stdout, done.stdout + done.stderr
    assert "out of memory: Ray ended it, since its node had too little left" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
