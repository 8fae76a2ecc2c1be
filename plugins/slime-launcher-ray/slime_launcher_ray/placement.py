"""Placement: what a group's workers need as bundles of a placement group, whether there can be room, and their order.

Ranks go by node, then by device: neighbours in a group are neighbours in the cluster.

Example:

    lease = Lease(spec, bundles(spec, shared_cores=True))
    await lease.take(cluster, timeout_s=300.0)          # waits for room that others have
"""

import asyncio
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from slime_core.errors import ConfigError
from slime_core.roles import Needs, Pack, PerNode, Place, WorkerGroupSpec
from slime_launcher_ray.actor import Site
from slime_launcher_ray.cluster import Cluster, Node, Room

SHARED_CORE = 0.001
"""What a core counts on a cluster of this machine: there, as under the local launcher, workers share cores."""
LEAST = 0.001
"""Of a core, for a worker that needs nothing: Ray wants a bundle to have something."""
LOOK_S = 1.0
"""Seconds between two looks whether there is room."""
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one worker is put."""

    bundle: int
    """Index of its bundle."""
    resources: Mapping[str, float]
    """What of it is the worker's, by Ray's names; nothing beside another group."""
    devices: tuple[str, ...] = ()
    """GPUs of who is there already."""


def resources(needs: Needs, *, shared_cores: bool) -> dict[str, float]:
    """What one worker takes, by Ray's names."""
    cores = needs.cpus * SHARED_CORE if shared_cores else needs.cpus
    found = {"CPU": cores, "GPU": needs.gpus, "memory": float(needs.memory or 0), **needs.custom}
    return {name: amount for name, amount in found.items() if amount} or {"CPU": LEAST}


def bundles(spec: WorkerGroupSpec, each: Mapping[str, float]) -> tuple[list[dict[str, float]], list[int], str]:
    """Bundles, the bundle of each worker, and Ray's strategy."""
    if isinstance(spec.pack, PerNode):
        nodes = math.ceil(spec.size / spec.pack.workers)
        dealt = [worker // spec.pack.workers for worker in range(spec.size)]
        sizes = [dealt.count(node) for node in range(nodes)]
        return [{name: amount * size for name, amount in each.items()} for size in sizes], dealt, "STRICT_SPREAD"
    strategy = "SPREAD" if spec.pack is Pack.SPREAD else "PACK"
    return [dict(each) for _ in range(spec.size)], list(range(spec.size)), strategy


def check_room(
    spec: WorkerGroupSpec, room: Room, each: Mapping[str, float], held: Mapping[str, Mapping[str, float]]
) -> None:
    """See that a cluster can ever have room for a group.

    Args:
        spec: the group.
        room: what there is.
        each: what one worker takes.
        held: what this run's other groups have, by name: they stay.

    Raises:
        ConfigError: it cannot.
    """
    why = _too_much(spec, room, each)
    for name, amount in each.items():
        taken = sum(group.get(name, 0.0) for group in held.values())
        total = sum(node.resources.get(name, 0.0) for node in room.nodes)
        if not why and amount * spec.size > total - taken + SLACK:
            taken_by = f", of which {', '.join(held)} took {_amount(name, taken)}" if taken else ""
            why = f"there is {_amount(name, total)} in all{taken_by}"
    if why:
        workers = f"{spec.size} workers, each with {spec.needs}" if spec.size > 1 else str(spec.needs)
        raise ConfigError(
            f"group {spec.name!r} needs {workers}. {room.where[0].upper()}{room.where[1:]} has {told(room)}: {why}. "
            "Ask for less, or choose a cluster that has it ([launcher.ray] address)"
        )


def told(room: Room) -> str:
    """What a cluster has, in words."""
    nodes = room.nodes
    names = sorted({name for node in nodes for name in node.resources if _counts(name)})
    sums = {name: sum(node.resources.get(name, 0.0) for node in nodes) for name in names}
    if room.shares_cores:
        sums["CPU"] = float(own_cores())
    sums.setdefault("GPU", 0.0)
    listed = ", ".join(_amount(name, amount) for name, amount in sums.items())
    return f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} with {listed}"


class Lease:
    """Room in a cluster, taken for a group and shared by those beside it; given back when the last worker is gone."""

    def __init__(self, spec: WorkerGroupSpec, each: Mapping[str, float]) -> None:
        """Nothing is taken yet."""
        self.name = spec.name
        self.takes = {name: amount * spec.size for name, amount in each.items()}
        self._bundles, self._dealt, self._strategy = bundles(spec, each)
        self._each = each
        self._users = 0
        self._group: PlacementGroup | None = None

    @property
    def group(self) -> PlacementGroup:
        """Ray's placement group."""
        assert self._group is not None, "taken"
        return self._group

    @property
    def slots(self) -> list[Slot]:
        """A slot for each worker of its own group."""
        return [Slot(bundle, self._each) for bundle in self._dealt]

    async def take(self, cluster: Cluster, timeout_s: float) -> None:
        """Wait for room.

        Raises:
            ConfigError: others have not left any in time; says what is free.
        """
        title = f"slime {self.name} {os.getpid()} {uuid.uuid4().hex[:8]}"  # no two may have one name
        group: PlacementGroup = await asyncio.to_thread(placement_group, self._bundles, self._strategy, title)
        self._group = group
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            while not await asyncio.to_thread(group.wait, LOOK_S):
                if loop.time() > until:
                    free = await asyncio.to_thread(ray.available_resources)
                    listed = ", ".join(_amount(name, each) for name, each in sorted(free.items()) if _counts(name))
                    raise ConfigError(
                        f"group {self.name!r} waited {timeout_s:g} s for room ([launcher.ray] placement_timeout_s): "
                        f"it needs {len(self._bundles)} times {_all(self._bundles[0])} ({self._strategy}), and free on "
                        f"the cluster at {cluster.address} are {listed or 'none'}, on {len(cluster.nodes())} nodes. "
                        "Wait for other runs to end (`ray status` shows them), or ask for less"
                    )
        except BaseException:
            await asyncio.to_thread(remove_placement_group, group)
            raise

    def join(self) -> None:
        """One worker more lives in it."""
        self._users += 1

    def leave(self) -> None:
        """One less."""
        self._users -= 1
        if not self._users and self._group is not None and ray.is_initialized():
            remove_placement_group(self._group)


def ordered(sites: Sequence[Site]) -> list[int]:
    """Positions of actors in the order of their ranks."""

    def key(position: int) -> tuple[object, ...]:
        site = sites[position]
        numbers = tuple(int(part) if part.isdecimal() else 0 for part in site.address.split("."))
        devices = tuple((int(each), "") if each.isdecimal() else (0, each) for each in site.devices)
        return numbers, site.address, site.node, devices, position

    return sorted(range(len(sites)), key=key)


def places(sites: Sequence[Site]) -> list[Place]:
    """The places of actors that are in order."""
    nodes = list(dict.fromkeys(site.node for site in sites))
    found: list[Place] = []
    for rank, site in enumerate(sites):
        local = sum(before.node == site.node for before in sites[:rank])
        meeting = f"{sites[0].address}:{sites[0].port}"
        found.append(
            Place(
                rank,
                local,
                node=nodes.index(site.node),
                nodes=len(nodes),
                address=site.address,
                devices=site.devices,
                port=site.port,
                meeting=meeting,
            )
        )
    return found


def _too_much(spec: WorkerGroupSpec, room: Room, each: Mapping[str, float]) -> str:
    """What no node has enough of for one worker, or too few for all."""
    nodes = room.nodes
    if room.shares_cores and spec.needs.cpus > own_cores():
        return "a worker cannot have more cores than there are"
    for name, amount in each.items():
        most = max((node.resources.get(name, 0.0) for node in nodes), default=0.0)
        if amount > most + SLACK:
            none = "it has no GPU" if name == "GPU" else f"none of it is called {name}"
            return f"no node has so much of {name}" if most else none
    if isinstance(spec.pack, PerNode):
        fitting = [node for node in nodes if _fits(each, node, min(spec.pack.workers, spec.size))]
        wanted = math.ceil(spec.size / spec.pack.workers)
        if len(fitting) < wanted:
            return (
                f"{wanted} nodes with room for {spec.pack.workers} workers each are asked for, {len(fitting)} have it"
            )
    return ""


def _fits(each: Mapping[str, float], node: Node, workers: int) -> bool:
    return all(amount * workers <= node.resources.get(name, 0.0) + SLACK for name, amount in each.items())


def own_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts(name: str) -> bool:
    """Whether users know a resource by this name."""
    return (
        not name.startswith(("node:", "object_store_memory", "accelerator_type:", "bundle_")) and "_group_" not in name
    )


def _amount(name: str, amount: float) -> str:
    match name:
        case "CPU":
            return f"{amount:g} core{'' if amount == 1 else 's'}"
        case "GPU":
            return f"{amount:g} GPU{'' if amount == 1 else 's'}"
        case "memory":
            return f"{amount / 2**30:.1f} GiB of memory"
    return f"{amount:g} {name}"


def _all(bundle: Mapping[str, float]) -> str:
    return ", ".join(_amount(name, amount) for name, amount in bundle.items())
