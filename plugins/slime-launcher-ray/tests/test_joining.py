"""Clusters that cannot be joined."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ray_clusters import OPEN, head

pytestmark = pytest.mark.cluster

OTHER = """
import ray
ray.__version__ = "2.1.0"
from ray.scripts.scripts import main
main()
"""
"""The `ray` command, changed to start clusters that report another version."""
START = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ray_live import Live
from slime_core.errors import ConfigError
from slime_core.roles import WorkerGroupSpec
from slime_launcher_ray.settings import RaySettings

live = Live(Path("logs"), RaySettings(address=sys.argv[1]))
try:
    live.run(live.launcher.start(WorkerGroupSpec("kit", 1, "slime_testing.launcher_worker:Worker", {"start": 1})))
except ConfigError as error:
    print("refused:", error)
live.run(live.launcher.close())
"""
"""A driver in a separate process: a failed attempt to join may leave a process in an unknown state."""


def refused(address: str, folder: Path) -> str:
    """Output of a driver that cannot join the cluster."""
    command = [sys.executable, "-c", START, address, str(Path(__file__).parent)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | OPEN, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def test_version_mismatch_is_named(tmp_path: Path) -> None:
    with head([sys.executable, "-c", OTHER], tmp_path) as other:
        output = refused(other.address, tmp_path)
    assert f"refused: the Ray cluster at {other.address} has another version: " in output
    assert "Ray: 2.1.0" in output
    assert "Install the same versions on all nodes" in output


def test_stopped_head_is_refused_soon(tmp_path: Path) -> None:
    with head([sys.executable, "-m", "ray.scripts.scripts"], tmp_path) as stopped:
        own = [each for each in Path("/proc").glob("[0-9]*") if str(stopped.files) in _text(each / "cmdline")]
        (pid,) = (int(each.name) for each in own if _text(each / "comm") == "gcs_server\n")
        os.kill(pid, signal.SIGSTOP)
        try:
            output = refused(stopped.address, tmp_path)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert output.startswith("refused: "), output


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
