"""Cloud: a runtime of AgentCore and S3 on this machine, in a process of their own, and settings that lead there.

with Cloud.started() as cloud:
    RemoteSettings(**cloud.settings(tps_limit=1000.0))
    cloud.log("invoke")                         # what was asked of it
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cloud_server import ARN, BUCKET

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


@dataclass(frozen=True, slots=True)
class Cloud:
    """One that runs."""

    url: str

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Self]:
        """Until the block ends."""
        argv = [sys.executable, str(Path(__file__).with_name("cloud_server.py"))]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield cls(f"http://127.0.0.1:{process.stdout.readline().strip()}")
            finally:
                process.kill()

    def settings(self, **more: object) -> dict[str, object]:
        """Of `agent_remote`, for this cloud."""
        given: dict[str, object] = {
            "agent_runtime_arn": ARN,
            "s3_bucket": BUCKET,
            "exp_id": "tests/math",
            "endpoint_url": self.url,
            "s3_endpoint_url": self.url,
            "tps_limit": 1000.0,
            "initial_interval": 0.02,
            "max_interval": 0.1,
        }
        return given | more

    def log(self, what: str, session: str | None = None) -> list[dict[str, Any]]:
        """What it was asked, in order: "invoke", "stop", "look"."""
        return [each for each in self._told()["log"] if each["what"] == what and session in (None, each.get("session"))]

    def most(self) -> int:
        """The most sessions that it had at once."""
        return int(self._told()["most"])

    def _told(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/log", timeout=30) as answer:
            return dict(json.load(answer))
