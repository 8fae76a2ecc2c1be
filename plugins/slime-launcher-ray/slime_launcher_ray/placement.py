"""Placement: bundles for a group's workers, a check for room, and the order of ranks.

Ranks are ordered by node, then by device, so that neighbouring ranks are close in the cluster.

Example:

    share = resources(spec.needs, shared_cores=True)
    check_room(spec, cluster.resources(), share, held={})     # or a ConfigError that lists the cluster's resources
"""

import math
from collections.abc import Mapping, Sequence

from slime_core.errors import ConfigError
from slime_core.processes import own_cores
from slime_core.roles import Needs, Place, WorkerGroupSpec
from slime_launcher_ray.actor import Site
from slime_launcher_ray.cluster import ClusterResources, Node

SHARED_CORE = 0.001
"""Ray CPUs per core on a local cluster, where workers share cores as with the local launcher."""
LEAST = 0.001
"""Cores of a worker that needs no resources, since Ray rejects empty bundles."""
SLACK = 1e-6


def resources(needs: Needs, *, shared_cores: bool) -> dict[str, float]:
    """Resources of one worker, by Ray's names."""
    cores = needs.cpus * SHARED_CORE if shared_cores else needs.cpus
    found = {"CPU": cores, "GPU": needs.gpus, "memory": float(needs.memory or 0), **needs.custom}
    return {name: amount for name, amount in found.items() if amount} or {"CPU": LEAST}


def bundles(spec: WorkerGroupSpec, share: Mapping[str, float]) -> tuple[list[dict[str, float]], list[int], str]:
    """Bundles, the index of each worker's bundle, and Ray's placement strategy."""
    if spec.per_node is not None:
        nodes = math.ceil(spec.size / spec.per_node)
        indexes = [worker // spec.per_node for worker in range(spec.size)]
        sizes = [indexes.count(node) for node in range(nodes)]
        return [{name: amount * size for name, amount in share.items()} for size in sizes], indexes, "STRICT_SPREAD"
    return [dict(share) for _ in range(spec.size)], list(range(spec.size)), "PACK"


def check_room(
    spec: WorkerGroupSpec, room: ClusterResources, share: Mapping[str, float], held: Mapping[str, Mapping[str, float]]
) -> None:
    """Check that a cluster without other runs has room for a group.

    Args:
        spec: the group.
        room: the cluster's total resources.
        share: resources of one worker.
        held: resources of this run's other groups, by name.

    Raises:
        ConfigError: the cluster is too small.
    """
    why = _shortage(spec, room, share)
    for name, amount in share.items():
        used = sum(group.get(name, 0.0) for group in held.values())
        total = sum(node.resources.get(name, 0.0) for node in room.nodes)
        if not why and amount * spec.size > total - used + SLACK:
            used_by = f", with {format_amount(name, used)} used by {', '.join(held)}" if used else ""
            declared = "; `ray start --num-cpus=N` sets a node's number" if name == "CPU" else ""
            why = f"the total is {format_amount(name, total)}{used_by}{declared}"
    if why:
        workers = f"{spec.size} workers, each with {spec.needs}" if spec.size > 1 else str(spec.needs)
        raise ConfigError(
            f"group {spec.name!r} needs {workers}. {room.where[0].upper()}{room.where[1:]} has {describe(room)}: {why}"
            ". Request less, or choose a larger cluster with [launcher.ray] address"
        )


def describe(room: ClusterResources) -> str:
    """A cluster's resources, in words."""
    nodes = room.nodes
    names = sorted({name for node in nodes for name in node.resources if is_requestable(name)})
    sums = {name: sum(node.resources.get(name, 0.0) for node in nodes) for name in names}
    if room.shares_cores:
        sums["CPU"] = float(own_cores())
    sums.setdefault("GPU", 0.0)
    listed = ", ".join(format_amount(name, amount) for name, amount in sums.items())
    return f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} with {listed}"


def rank_order(sites: Sequence[Site]) -> list[int]:
    """Indexes of actors in the order of their ranks."""

    def key(position: int) -> tuple[object, ...]:
        site = sites[position]
        numbers = tuple(int(part) if part.isdecimal() else 0 for part in site.address.split("."))
        devices = tuple((int(each), "") if each.isdecimal() else (0, each) for each in site.devices)
        return numbers, site.address, site.node, devices, position

    return sorted(range(len(sites)), key=key)


def places(sites: Sequence[Site]) -> list[Place]:
    """The places of actors that are sorted by rank."""
    nodes = list(dict.fromkeys(site.node for site in sites))
    found: list[Place] = []
    for rank, site in enumerate(sites):
        local = sum(before.node == site.node for before in sites[:rank])
        rendezvous = f"{sites[0].address}:{sites[0].port}"
        found.append(
            Place(
                rank,
                local,
                node=nodes.index(site.node),
                nodes=len(nodes),
                address=site.address,
                devices=site.devices,
                port=site.port,
                rendezvous=rendezvous,
            )
        )
    return found


def _shortage(spec: WorkerGroupSpec, room: ClusterResources, share: Mapping[str, float]) -> str:
    nodes = room.nodes
    if room.shares_cores and spec.needs.cpus > own_cores():
        return f"one worker needs {spec.needs.cpus:g} cores, and this machine has {own_cores()}"
    for name, amount in share.items():
        most = max((node.resources.get(name, 0.0) for node in nodes), default=0.0)
        if amount > most + SLACK:
            none = "it has no GPU" if name == "GPU" else f"it has no resource named {name}"
            return f"no node has {format_amount(name, amount)}" if most else none
    if spec.per_node is not None:
        fitting = [node for node in nodes if _fits(share, node, min(spec.per_node, spec.size))]
        wanted = math.ceil(spec.size / spec.per_node)
        if len(fitting) < wanted:
            return f"it needs {wanted} nodes with room for {spec.per_node} workers each, and {len(fitting)} have it"
    return ""


def _fits(share: Mapping[str, float], node: Node, workers: int) -> bool:
    return all(amount * workers <= node.resources.get(name, 0.0) + SLACK for name, amount in share.items())


def is_requestable(name: str) -> bool:
    """Whether a resource is one that users request, not one of Ray's internal resources."""
    return (
        not name.startswith(("node:", "object_store_memory", "accelerator_type:", "bundle_")) and "_group_" not in name
    )


def format_amount(name: str, amount: float) -> str:
    """An amount of a resource in words: "2 GPUs"."""
    match name:
        case "CPU":
            return f"{amount:g} core{'' if amount == 1 else 's'}"
        case "GPU":
            return f"{amount:g} GPU{'' if amount == 1 else 's'}"
        case "memory":
            return f"{amount / 2**30:.1f} GiB of memory"
    return f"{amount:g} {name}"
