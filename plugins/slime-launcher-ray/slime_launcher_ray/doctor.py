"""Checks of `slime doctor` for Ray on this machine and for all nodes of the cluster in RAY_ADDRESS.

Example:

    RAY_ADDRESS=auto slime doctor
"""

import os
import platform
import socket
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.roles import CheckSpec, Finding, Health
from slime_launcher_ray.checks import INSTALL, has_ray

if TYPE_CHECKING:
    from slime_launcher_ray.survey import NodeReport

ADDRESS = "RAY_ADDRESS"
HEAD_PORT, JOBS_PORT = 6379, 8265
MOST_SKEW_S = 1.0
"""Seconds by which clocks may differ; more makes times in logs hard to compare."""
LEAST_SHM = 1 << 30
"""Bytes of free /dev/shm below which Ray's object store uses the disk instead."""

NO_RAY = Finding(Health.ERROR, "Ray is not installed here", INSTALL)


def checks() -> Iterator[CheckSpec]:
    """The checks, in display order."""
    yield CheckSpec.from_function("versions", versions, "Do all nodes have the same Ray, Python and slime?")
    yield CheckSpec.from_function("gpus", gpus, "Does Ray count all GPUs of each node?")
    yield CheckSpec.from_function("clocks", clocks, "Do the nodes' clocks agree?")
    yield CheckSpec.from_function("ports", ports, "Are a head's ports free, or does a head use them?")
    yield CheckSpec.from_function("run_folder", run_folder, "Do all nodes share the folder of runs?")
    yield CheckSpec.from_function("object_store", object_store, "Does each node have space in /dev/shm for Ray?")


def versions() -> Finding:
    """Compares the installed versions of all nodes."""
    if not has_ray():
        return NO_RAY
    if not _address():
        here = f"Ray {metadata.version('ray')}, Python {platform.python_version()}"
        return Finding(Health.OK, f"{here} here; no cluster checked (set {ADDRESS}=HOST:PORT or auto)")

    def judge(nodes: "list[NodeReport]") -> Finding:
        by_node = {each.address: _versions(each) for each in nodes}
        if len(set(by_node.values())) > 1 or any("without" in each for each in by_node.values()):
            listed = "; ".join(f"{address}: {each}" for address, each in by_node.items())
            return Finding(Health.ERROR, listed, "install the same versions on all nodes, or use one image for all")
        return Finding(Health.OK, f"{_nodes(nodes)}: {next(iter(by_node.values()))}")

    return _check_nodes(judge)


def gpus() -> Finding:
    """Compares the GPUs that Ray counts with the devices of each node."""

    def judge(nodes: "list[NodeReport]") -> Finding:
        listed = ", ".join(f"{each.address} {each.counted_gpus:g}" for each in nodes)
        if short := [each for each in nodes if each.counted_gpus < each.devices]:
            found = ", ".join(f"{each.address} has {each.devices}, Ray counts {each.counted_gpus:g}" for each in short)
            return Finding(Health.WARNING, found, "start those nodes without CUDA_VISIBLE_DEVICES, or with --num-gpus")
        return Finding(Health.OK, f"GPUs by node: {listed}")

    return _check_nodes(judge)


def clocks() -> Finding:
    """Compares the nodes' clocks with this machine's."""

    def judge(nodes: "list[NodeReport]") -> Finding:
        worst = max(nodes, key=lambda each: abs(each.skew_s))
        text = f"{_nodes(nodes)}; worst: {worst.address}, {worst.skew_s:+.3f} s off (± {worst.skew_error_s:.3f} s)"
        if abs(worst.skew_s) - worst.skew_error_s > MOST_SKEW_S:
            return Finding(Health.WARNING, text, "synchronize all clocks with one time server: chronyc makestep")
        return Finding(Health.OK, text)

    return _check_nodes(judge)


def ports() -> Finding:
    """Checks whether a head could be started here, or whether the cluster's job server answers."""
    if not (address := _address()):
        used_ports = [str(port) for port in (HEAD_PORT, JOBS_PORT) if _answers("127.0.0.1", port)]
        if used_ports:
            advice = "`ray status` shows a running cluster; else set free ports: ray start --port, --dashboard-port"
            return Finding(Health.WARNING, f"another process uses port {', '.join(used_ports)} of this machine", advice)
        return Finding(Health.OK, f"{HEAD_PORT} and {JOBS_PORT} are free for a head on this machine")
    host = "127.0.0.1" if address == "auto" else address.rpartition(":")[0]
    if _answers(host, JOBS_PORT):
        return Finding(Health.OK, f"the job server answers at http://{host}:{JOBS_PORT}")
    advice = "start the head with --include-dashboard=true --dashboard-host=0.0.0.0"
    return Finding(Health.WARNING, f"no job server answers at http://{host}:{JOBS_PORT}", advice)


def run_folder() -> Finding:
    """Checks whether each node sees and can write to the folder of runs."""

    def judge(nodes: "list[NodeReport]") -> Finding:
        unseen = [f"{each.address} does not see it" for each in nodes if not each.sees_folder]
        refused = [f"{each.address} cannot write to it ({each.writes_folder})" for each in nodes if each.writes_folder]
        if unseen or refused:
            text = f"{Path('runs').absolute()}: {', '.join(unseen + refused)}"
            return Finding(Health.ERROR, text, "use a folder that all nodes share under one path: --save PATH")
        return Finding(Health.OK, f"{_nodes(nodes)} share and can write to {Path('runs').absolute()}")

    return _check_nodes(judge)


def object_store() -> Finding:
    """Checks how much of /dev/shm is free on each node."""

    def judge(nodes: "list[NodeReport]") -> Finding:
        least = min(nodes, key=lambda each: each.free_shm)
        text = f"{least.address} has {least.free_shm / 2**30:.1f} GiB free in /dev/shm, the least of {_nodes(nodes)}"
        if least.free_shm < min(LEAST_SHM, least.store):
            return Finding(Health.WARNING, text, "delete old files there, or start its container with --shm-size=8g")
        return Finding(Health.OK, text)

    return _check_nodes(judge)


def _check_nodes(judge: "Callable[[list[NodeReport]], Finding]") -> Finding:
    if not has_ray():
        return NO_RAY
    if not (address := _address()):
        return Finding(Health.OK, f"no cluster checked (set {ADDRESS})")
    from slime_core.errors import SlimeError
    from slime_launcher_ray.survey import survey

    try:
        return judge(survey(address, Path("runs")))
    except SlimeError as error:
        return Finding(Health.ERROR, str(error), f"correct {ADDRESS}, or start the cluster")


def _address() -> str:
    return os.environ.get(ADDRESS, "")


def _versions(report: "NodeReport") -> str:
    packages = [f"{name} {version}" if version else f"without {name}" for name, version in report.packages.items()]
    return ", ".join([f"Ray {report.ray}", f"Python {report.python}", *packages])


def _nodes(nodes: "list[NodeReport]") -> str:
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}"


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 2.0).close()
    except OSError:
        return False
    return True
