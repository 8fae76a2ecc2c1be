"""Survey: a report from each node of a running cluster, collected once for all checks of `slime doctor`.

Ray sends this module's code to the nodes, so that nodes without slime report too.

Example:

    for node in survey("10.0.0.1:6379", Path("runs")):
        print(node.address, node.python, node.skew_s)
"""

import asyncio
import functools
import importlib.metadata
import os
import platform
import shutil
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from slime_launcher_ray.cluster import Cluster, Node, join
from slime_launcher_ray.settings import RaySettings

ANSWER_S = 12.0
"""Seconds within which all nodes must answer; a check of `slime doctor` has 20 s."""
CLOCK_QUERIES = 5
"""Clock queries per node; the fastest one counts."""
PACKAGES = ("slime-core", "slime-launcher-ray")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of one node."""

    address: str
    python: str
    ray: str
    packages: dict[str, str]
    """Versions of slime's packages by name; empty for a missing package."""
    counted_gpus: float
    """GPUs that Ray counts."""
    devices: int
    """Number of GPU device files."""
    skew_s: float
    """Seconds that its clock is ahead of this machine's, within `skew_error_s`."""
    skew_error_s: float
    sees_folder: bool
    """Whether it sees a file that this machine has just written to the folder of runs."""
    writes_folder: str
    """Why it cannot write to that folder; empty if it can."""
    free_shm: int
    """Free bytes in /dev/shm."""
    store: float
    """Size of its object store in bytes."""


class _NodeProbe:
    def report(self, folder: str, token: str) -> dict[str, object]:
        packages = {}
        for name in PACKAGES:
            try:
                packages[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                packages[name] = ""
        there, why = Path(folder), ""
        own = there / f"{token}-{os.getpid()}"
        try:
            own.touch()
            own.unlink()
        except OSError as error:
            why = error.strerror or str(error)
        shm = Path("/dev/shm")
        return {
            "python": platform.python_version(),
            "ray": ray.__version__,
            "packages": packages,
            "devices": len([each for each in Path("/dev").glob("nvidia[0-9]*") if each.name[6:].isdecimal()]),
            "sees_folder": (there / token).exists(),
            "writes_folder": why,
            "free_shm": shutil.disk_usage(shm).free if shm.is_dir() else 0,
        }

    def now(self) -> float:
        return time.time()


@functools.cache
def survey(address: str, folder: Path) -> list[NodeReport]:
    """Reports of the nodes, sorted by address.

    Args:
        address: the cluster's address.
        folder: the shared folder to check; if it does not exist, its nearest existing parent.

    Raises:
        SlimeError: the cluster cannot be joined.
        ray.exceptions.RayError: a node does not answer in time.
    """
    return asyncio.run(_survey(address, folder))


async def _survey(address: str, folder: Path) -> list[NodeReport]:
    cluster = await join(RaySettings(address=address))
    try:
        return await asyncio.to_thread(_collect, cluster, folder)
    finally:
        await cluster.leave()


def _collect(cluster: Cluster, folder: Path) -> list[NodeReport]:
    shared = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
    token = f".slime-doctor-{uuid.uuid4().hex[:12]}"
    (shared / token).touch()
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        nodes = cluster.nodes()
        remote = ray.remote(_NodeProbe)
        probes = [
            remote.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.identity, soft=False)
            ).remote()
            for node in nodes
        ]
        reports = ray.get([each.report.remote(str(shared), token) for each in probes], timeout=ANSWER_S)
        return [_node_report(node, probe, values) for node, probe, values in zip(nodes, probes, reports, strict=True)]
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        (shared / token).unlink()


def _node_report(node: Node, probe: "ray.actor.ActorHandle[_NodeProbe]", values: dict[str, object]) -> NodeReport:
    answers: list[tuple[float, float]] = []
    for _ in range(CLOCK_QUERIES):
        before = time.time()
        there: float = ray.get(probe.now.remote(), timeout=ANSWER_S)
        after = time.time()
        answers.append(((after - before) / 2, there - (before + after) / 2))
    error, skew = min(answers)
    return NodeReport(
        address=node.address,
        counted_gpus=node.resources.get("GPU", 0.0),
        skew_s=skew,
        skew_error_s=error,
        store=node.resources.get("object_store_memory", 0.0),
        **values,  # type: ignore[arg-type]
    )
