"""Running clusters, as users start them."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ray.cluster_utils import Cluster

OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}


class Head(NamedTuple):
    """A running head."""

    address: str
    """HOST:PORT."""
    files: Path
    """Folder of Ray's files, through which its processes find each other."""


@contextlib.contextmanager
def head(ray: Sequence[str | Path], folder: Path) -> Iterator[Head]:
    """Start a head in a folder with this `ray` command, and end it afterwards."""
    temporary = Path(tempfile.mkdtemp(prefix="rh-"))  # short, since socket paths have a limit
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


@contextlib.contextmanager
def nodes(head: Mapping[str, object], *others: Mapping[str, object]) -> Iterator[Cluster]:
    """A cluster of several nodes on this machine, with each node's declared resources."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **head})
    for each in others:
        cluster.add_node(**each)
    yield cluster
    cluster.shutdown()
    for number, handler in handlers.items():
        signal.signal(number, handler)
