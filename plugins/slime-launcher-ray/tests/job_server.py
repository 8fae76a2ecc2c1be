"""A cluster with a server of jobs, as somebody runs one."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from slime_core.processes import free_port
from slime_launcher_ray.guard import end_marked

MARK = "SLIME_RAY_JOBS"
WAIT_S = 300.0
OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "SPT_NOENV": "1"}


@contextlib.contextmanager
def job_server(
    environment: Mapping[str, str], cpus: int = 2, inherited: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of one that runs until the block ends, with these variables besides those of this process."""
    port, other = free_port("127.0.0.1"), free_port("127.0.0.1")
    ray = Path(sys.executable).with_name("ray")
    temporary = Path(tempfile.mkdtemp(prefix="rj-"))  # short: the path of a socket has to be
    arguments = ["--head", "--port=0", f"--num-cpus={cpus}", f"--dashboard-port={port}", f"--temp-dir={temporary}"]
    process = subprocess.Popen(
        [ray, "start", "--block", "--include-dashboard=true", f"--dashboard-agent-listen-port={other}", *arguments],
        env={**(os.environ | OPEN if inherited is None else inherited), **environment, MARK: str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + WAIT_S
        while not _answers(url):
            assert time.monotonic() < end, "no server of jobs"
            time.sleep(0.2)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        end_marked(f"{MARK}={port}")
        shutil.rmtree(temporary, ignore_errors=True)


def _answers(url: str) -> bool:
    """Whether somebody does, though with a refusal."""
    try:
        urllib.request.urlopen(f"{url}/api/version", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
