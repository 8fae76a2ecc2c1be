"""Head, on the driver's side: starts and ends the process that owns a local cluster, and reads its errors."""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from slime_core.errors import WorkerError
from slime_launcher_ray.guard import kill_marked, marked_processes, remove
from slime_launcher_ray.head import MARK
from slime_launcher_ray.settings import RaySettings

END_S = 15.0
"""Seconds that a local cluster has to end."""
LAST_LINES = 15
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # like the local launcher's workers; Ray's default lowers their priority
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker without own GPUs may share another worker's
    "SPT_NOENV": "1",  # else setting a process title overwrites the environment with the mark
}


class Head:
    """The process that owns a local cluster."""

    def __init__(self, settings: RaySettings) -> None:
        """Start the process; `wait_started` waits until it is ready."""
        self._mark = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="slime-ray-"))  # short, since socket paths have a limit
        self._limit_s = settings.start_timeout_s
        options = {
            "mark": self._mark,
            "folder": str(self._folder),
            "driver": os.getpid(),
            "num_gpus": settings.num_gpus,
            "object_store_mb": settings.object_store_mb,
            "dashboard": settings.dashboard,
        }
        inherited = {name: each for name, each in os.environ.items() if name != "RAY_ADDRESS"}
        self._printed = (self._folder / "head.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slime_launcher_ray.head", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            start_new_session=True,
            env={**inherited, **ENVIRONMENT, MARK: self._mark, "RAY_raylet_start_wait_time_s": str(int(self._limit_s))},
        )

    def wait_started(self) -> str:
        """Wait for the cluster's address. Raises WorkerError: the process ended, or took too long."""
        assert self.process.stdout is not None, "stdout is a pipe"
        ready = select.select([self.process.stdout], [], [], self._limit_s)[0]
        line = self.process.stdout.readline() if ready else b""
        if line:
            return str(json.loads(line)["address"])
        tail = self._log_tail()
        self.close()
        how = "ended" if ready else f"was not ready within {self._limit_s:g} s ([launcher.ray] start_timeout_s)"
        raise WorkerError(f"a Ray cluster on this machine could not start: its head {how}. End of its log:\n{tail}")

    def wake(self) -> None:
        """Resume processes of the cluster that a signal has stopped."""
        for pid in marked_processes(f"{MARK}={self._mark}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process and its cluster."""
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        kill_marked(f"{MARK}={self._mark}")
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._printed.close()
        remove(str(self._folder))

    def _log_tail(self) -> str:
        logs = [self._folder / "head.log", *sorted(self._folder.glob("session_*/logs/raylet.*"))]
        lines: list[str] = []
        for log in logs:
            with contextlib.suppress(OSError):
                lines += log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(lines)
