"""The local launcher: worker groups as processes of this machine.

Workers are forked from a server that has imported what they preload, so that torch is imported once for all of them;
processes of one thread beat one process of many at small sizes (OpenMP's barriers spin, and cost 10x under other load).
"""

import asyncio
import socket
from dataclasses import replace
from typing import NamedTuple

from slime_core.errors import ConfigError
from slime_core.processes.group import GroupOfWorkers
from slime_core.processes.machine import DEVICES, Lease, Machine
from slime_core.processes.serve import PRELOAD, Order
from slime_core.processes.server import ENVIRONMENT, shared_server
from slime_core.processes.worker import LocalWorker
from slime_core.roles import LauncherSetup, PerNode, Place, WorkerGroupSpec

LOOPBACK = "127.0.0.1"
OWN_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""What its workers have besides `ENVIRONMENT`: they meet on this machine alone."""


class _Running(NamedTuple):
    name: str
    group: GroupOfWorkers
    lease: Lease | None


class LocalLauncher:
    """Implements `slime_core.roles.Launcher`."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Look at what this machine has."""
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
        """Where the workers are to live, and what is taken for that.

        Raises:
            ConfigError: there is no room for them.
        """
        for _, _, lease in [each for each in self._running if each.group.is_closed]:
            if lease is not None:
                self._machine.give_back(lease)
        self._running = [each for each in self._running if not each.group.is_closed]
        if isinstance(spec.pack, PerNode) and spec.pack.workers < spec.size:
            raise ConfigError(
                f"group {spec.name!r} asks for {spec.pack.workers} of its {spec.size} workers on a node; this machine "
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
        """The GPUs of another group, dealt to so many workers.

        Raises:
            ConfigError: that group does not run.
        """
        for other in self._running:
            if other.name == beside:
                shared = [place.devices for place in other.group.places]
                return [shared[rank % len(shared)] for rank in range(size)]
        raise ConfigError(
            f"group {name!r} is to live beside {beside!r}, which does not run; what does: "
            f"{', '.join(each.name for each in self._running) or 'no group'}"
        )


def free_port(address: str) -> int:
    """A port that the system hands to nobody for the next minute, but to who asks for it by number.

    A connection that was closed here first leaves its port in TIME_WAIT, where servers, which set SO_REUSEADDR, may
    take it, and clients are not given it.
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
