"""A head of a cluster that runs already, as users start it."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}


class Head(NamedTuple):
    """One that runs."""

    address: str
    """HOST:PORT."""
    files: Path
    """Where Ray's files are, by which its processes know each other."""


@contextlib.contextmanager
def head(ray: Sequence[str | Path], folder: Path) -> Iterator[Head]:
    """Start one by this command line for `ray`, in a folder, and end it afterwards."""
    temporary = Path(tempfile.mkdtemp(prefix="rh-"))  # short: the path of a socket has to be
    arguments = ["--head", "--port=0", "--num-cpus=4", "--include-dashboard=false", f"--temp-dir={temporary}"]
    process = subprocess.Popen(
        [*ray, "start", "--block", *arguments], cwd=folder, env=os.environ | OPEN, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "--address=" in line)
        yield Head(line.partition("--address='")[2].partition("'")[0], temporary)
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        process.wait()
        shutil.rmtree(temporary, ignore_errors=True)
