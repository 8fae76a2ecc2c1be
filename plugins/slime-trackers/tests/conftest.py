"""Processes of a run, each with its own tracker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

Row: TypeAlias = tuple[int, Mapping[str, float]]
Process: TypeAlias = Callable[..., None]
PROCESS = """
import asyncio, json, os, signal, sys
from pathlib import Path
from slime_core.roles import TrackerSetup
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_trackers.plugin import slime_trackers

name, settings, run_dir, rows, killed = json.loads(sys.argv[1])
(spec,) = (spec for spec in slime_trackers() if spec.name == name)
tracker = spec.factory(spec.model.model_validate(settings), TrackerSetup(lambda *_: None, 0, run_dir=Path(run_dir)))

path = Path(run_dir) / "metrics.jsonl"  # as in a run: truncated at the checkpoint
lines = path.read_text().splitlines(keepends=True) if path.exists() else []
path.write_text("".join(line for line in lines if json.loads(line)["step"] < rows[0][0]))

async def main():
    for step, metrics in rows:
        with MetricsLog(path) as log:
            log.append(MetricsRow(step, step, 0.0, metrics))
        await tracker.log(step, metrics)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    await tracker.close()

asyncio.run(main())
"""


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """Run a process that logs rows and then closes the tracker, or is killed."""

    def run(
        name: str, settings: Mapping[str, object], run_dir: Path, rows: Sequence[Row], *, killed: bool = False
    ) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        arguments = json.dumps([name, settings, str(run_dir), rows, killed])
        here = {"HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio"), "MLFLOW_TRACKING_URI": ""}
        ran = subprocess.run(
            [sys.executable, "-c", PROCESS, arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | here,
            timeout=120,
        )
        assert ran.returncode == (-signal.SIGKILL if killed else 0), ran.stdout + ran.stderr

    return run
