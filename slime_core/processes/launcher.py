"""The local launcher: starts worker groups on this machine, within its memory, GPUs and cores.

Workers are forked from a server, so torch is imported once for all. `Machine` records what is in use: groups may
share cores, but not memory or GPUs.

Example:

    machine = Machine.here()
    lease = machine.take("trainer", Needs(gpus=1.0), workers=2)         # or a ConfigError
    lease.devices                                                       # [("0",), ("1",)]
    machine.give_back(lease)
"""

import asyncio
import math
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from slime_core.errors import ConfigError
from slime_core.processes.group import GroupOfWorkers, LocalWorker
from slime_core.processes.limits import own_cores
from slime_core.processes.server import ENVIRONMENT, shared_server
from slime_core.processes.worker import PRELOAD, Order
from slime_core.roles import LauncherSetup, Needs, Place, WorkerGroupSpec

DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that lists the GPUs of a process."""


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """What a group has taken: memory in bytes, and the share of each GPU for each worker."""

    group: str
    memory: int
    gpus: Sequence[Mapping[str, float]]

    @property
    def devices(self) -> list[tuple[str, ...]]:
        """The GPUs of each worker."""
        return [tuple(share) for share in self.gpus]


class Machine:
    """Cores, memory in bytes and GPUs of one machine, and the leases of its groups."""

    def __init__(self, cores: int, memory: int, gpus: Sequence[str]) -> None:
        self._cores, self._memory, self._gpus = cores, memory, gpus
        self._leases: list[Lease] = []

    @classmethod
    def here(cls) -> Self:
        """This machine, as far as this process may use it."""
        return cls(own_cores(), _memory(), _gpus())

    def __str__(self) -> str:
        gpus = f"GPUs {', '.join(self._gpus)}" if self._gpus else "no GPU"
        return f"{self._cores} core{'' if self._cores == 1 else 's'}, {self._memory / 2**30:.1f} GiB of memory, {gpus}"

    def take(self, group: str, needs: Needs, workers: int) -> Lease:
        """Take what the workers of a group need; ConfigError if that is not free."""
        shares: list[Mapping[str, float]] = []
        why = self._wants(needs, workers) or self._deal(needs.gpus, workers, shares)
        if why:
            names = ", ".join(lease.group for lease in self._leases)
            taken = f"; {names} took theirs before" if names else ""
            each = f"{workers} workers, each with {needs}" if workers > 1 else str(needs)
            raise ConfigError(
                f"group {group!r} needs {each}. This machine has {self}{taken}: {why}. Ask for less, or choose a "
                "launcher of a cluster that has it"
            )
        lease = Lease(group, (needs.memory or 0) * workers, shares)
        self._leases.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        """Free what a group has taken."""
        self._leases.remove(lease)

    def _wants(self, needs: Needs, workers: int) -> str:
        taken = sum(lease.memory for lease in self._leases)
        if needs.custom:
            return f"it has nothing called {', '.join(sorted(needs.custom))}"
        if needs.cpus > self._cores:
            return "a worker cannot have more cores than there are"
        if needs.memory is not None and needs.memory * workers > self._memory - taken:
            return f"{taken / 2**30:.1f} GiB of it are taken" if taken else "that is more memory than there is"
        return ""

    def _deal(self, wanted: float, workers: int, shares: list[Mapping[str, float]]) -> str:
        """Append each worker's share of the free GPUs; returns why that is not possible, or nothing."""
        taken = [share for lease in self._leases for share in lease.gpus]
        free = {name: 1.0 - sum(share.get(name, 0.0) for share in taken) for name in self._gpus}
        part, count = min(wanted, 1.0), math.ceil(wanted)
        for _ in range(workers):
            fitting = [name for name, left in free.items() if left >= part - 1e-9][:count]
            if len(fitting) < count:
                return "not so many GPUs are free"
            shares.append(dict.fromkeys(fitting, part))
            for name in fitting:
                free[name] -= part
        return ""


def _memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    return physical


def _gpus() -> list[str]:
    given = os.environ.get(DEVICES)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    found = [each for each in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", each.name)]
    return [str(number) for number in range(len(found))]


LOOPBACK = "127.0.0.1"
OWN_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Variables of its workers besides `ENVIRONMENT`: they meet on this machine alone."""


class _Running(NamedTuple):
    name: str
    group: GroupOfWorkers
    lease: Lease | None


class LocalLauncher:
    """Implements `slime_core.roles.Launcher`."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Read what this machine has."""
        self._logs, self._plugins = setup.scratch, setup.plugins
        self._machine = Machine.here()
        self._running: list[_Running] = []

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> GroupOfWorkers:
        """Start a group and wait until its workers are built; see `Launcher.start`."""
        places, lease = self._places(spec)
        orders = [Order(spec, place, self._plugins) for place in places]
        workers = [LocalWorker(order, self._logs / f"{spec.name}-{order.place.rank}.log") for order in orders]
        group = GroupOfWorkers(workers)
        self._running.append(_Running(spec.name, group, lease))
        threads = str(max(1, int(spec.needs.cpus)))
        own = OWN_ENVIRONMENT | {name: threads for name in ENVIRONMENT if name.endswith("_THREADS")}
        # CUDA does not outlive a fork, and an import may start it, as that of megatron-core does where there is a GPU.
        preload = () if spec.needs.gpus else spec.preload
        server = shared_server([PRELOAD, *preload], own | dict(spec.environment))
        try:
            for worker in workers:
                seen = {DEVICES: ",".join(worker.place.devices)} if worker.place.devices else {}
                await asyncio.to_thread(worker.launch, server, seen)
        except BaseException:
            await group.close()
            raise
        await group.built(timeout_s)
        return group

    async def close(self) -> None:
        """Stop every group."""
        await asyncio.gather(*(group.close() for _, group, _ in self._running))

    def _places(self, spec: WorkerGroupSpec) -> tuple[list[Place], Lease | None]:
        """The places of a group's workers, and its lease; ConfigError if there is no room."""
        for _, _, lease in [each for each in self._running if each.group.is_closed]:
            if lease is not None:
                self._machine.give_back(lease)
        self._running = [each for each in self._running if not each.group.is_closed]
        if spec.per_node is not None and spec.per_node < spec.size:
            raise ConfigError(
                f"group {spec.name!r} asks for {spec.per_node} of its {spec.size} workers on a node; this machine "
                f"is one node. Have all {spec.size} on one, or choose a launcher of several nodes"
            )
        if spec.beside is None:
            lease = self._machine.take(spec.name, spec.needs, spec.size)
            devices = lease.devices
        else:
            lease, devices = None, self._devices_of(spec.name, spec.beside, spec.size)
        places = [Place(rank, rank, devices=each, port=free_port(LOOPBACK)) for rank, each in enumerate(devices)]
        meeting = f"{LOOPBACK}:{places[0].port}"
        return [replace(place, address=LOOPBACK, meeting=meeting) for place in places], lease

    def _devices_of(self, name: str, beside: str, size: int) -> list[tuple[str, ...]]:
        for other in self._running:
            if other.name == beside:
                shared = [place.devices for place in other.group.places]
                return [shared[rank % len(shared)] for rank in range(size)]
        raise ConfigError(
            f"group {name!r} is to live beside {beside!r}, which does not run; what does: "
            f"{', '.join(each.name for each in self._running) or 'no group'}"
        )


def free_port(address: str) -> int:
    """A free port that the OS will not assign to another process for about a minute.

    A connection that this side closes first leaves its port in TIME_WAIT: a server, which sets SO_REUSEADDR, can bind
    it, and the OS gives it to no client.
    """
    with socket.socket() as listening, socket.socket() as client:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, 0))
        listening.listen(1)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        port: int = listening.getsockname()[1]
        accepted.close()
        return port
