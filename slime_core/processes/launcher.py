"""The local launcher: starts worker groups on this machine, within its memory, GPUs and cores.

Workers are forked from a server, so torch is imported once for all. Groups may share cores, but not memory or GPUs.

Example:

    devices = Machine.here().share("trainer", Needs(gpus=1.0), 2, taken=())     # [("0",), ("1",)], or a ConfigError
"""

import asyncio
import math
import os
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

from slime_core.errors import ConfigError
from slime_core.processes.group import GroupOfWorkers, LocalWorker
from slime_core.processes.limits import own_cores
from slime_core.processes.server import ENVIRONMENT, shared_server
from slime_core.processes.worker import PRELOAD, Order
from slime_core.roles import LauncherSetup, Needs, PerNode, Place, WorkerGroupSpec

DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that lists the GPUs of a process."""


class Taken(NamedTuple):
    """What a running group has."""

    group: str
    needs: Needs
    """Of each worker."""
    devices: Sequence[tuple[str, ...]]
    """GPUs of each worker."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, memory in bytes and GPUs of one machine."""

    cores: int
    memory: int
    gpus: Sequence[str]

    @classmethod
    def here(cls) -> Self:
        """This machine, as far as this process may use it."""
        return cls(own_cores(), _memory(), _gpus())

    def __str__(self) -> str:
        gpus = f"GPUs {', '.join(self.gpus)}" if self.gpus else "no GPU"
        return f"{self.cores} core{'' if self.cores == 1 else 's'}, {self.memory / 2**30:.1f} GiB of memory, {gpus}"

    def share(self, group: str, needs: Needs, workers: int, taken: Sequence[Taken]) -> list[tuple[str, ...]]:
        """The GPUs of each worker of another group; ConfigError if what it needs is not free."""
        memory = sum((each.needs.memory or 0) * len(each.devices) for each in taken)
        free = dict.fromkeys(self.gpus, 1.0)
        for each in taken:
            for name in chain.from_iterable(each.devices):
                free[name] -= min(each.needs.gpus, 1.0)
        devices, part, count = list[tuple[str, ...]](), min(needs.gpus, 1.0), math.ceil(needs.gpus)
        for _ in range(workers):
            fitting = [name for name, left in free.items() if left >= part - 1e-9][:count]
            free.update({name: free[name] - part for name in fitting})
            devices.append(tuple(fitting))
        if needs.custom:
            why = f"it has nothing called {', '.join(sorted(needs.custom))}"
        elif needs.cpus > self.cores:
            why = "a worker cannot have more cores than there are"
        elif (needs.memory or 0) * workers > self.memory - memory:
            why = f"{memory / 2**30:.1f} GiB of it are taken" if memory else "that is more memory than there is"
        elif any(len(each) < count for each in devices):
            why = "not so many GPUs are free"
        else:
            return devices
        others = f"; {', '.join(each.group for each in taken)} took theirs before" if taken else ""
        asked = f"{workers} workers, each with {needs}" if workers > 1 else str(needs)
        raise ConfigError(
            f"group {group!r} needs {asked}. This machine has {self}{others}: {why}. Ask for less, or choose a "
            "launcher of a cluster that has it"
        )


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


class LocalLauncher:
    """Implements `slime_core.roles.Launcher`."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Read what this machine has."""
        self._logs, self._plugins = setup.scratch, setup.plugins
        self._machine = Machine.here()
        self._running: list[tuple[Taken, GroupOfWorkers]] = []

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> GroupOfWorkers:
        """Start a group and wait until its workers are built; see `Launcher.start`."""
        taken = self._take(spec)
        ports = [free_port(LOOPBACK) for _ in taken.devices]
        meeting = f"{LOOPBACK}:{ports[0]}"
        places = [
            Place(rank, rank, address=LOOPBACK, devices=devices, port=port, meeting=meeting)
            for rank, (devices, port) in enumerate(zip(taken.devices, ports, strict=True))
        ]
        orders = [Order(spec, place, self._plugins) for place in places]
        workers = [LocalWorker(order, self._logs / f"{spec.name}-{order.place.rank}.log") for order in orders]
        group = GroupOfWorkers(workers)
        self._running.append((taken, group))
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
        await asyncio.gather(*(group.close() for _, group in self._running))

    def _take(self, spec: WorkerGroupSpec) -> Taken:
        """What a group gets; ConfigError if there is no room."""
        self._running = [each for each in self._running if not each[1].is_closed]
        taken = [each for each, _ in self._running]
        if isinstance(spec.pack, PerNode) and spec.pack.workers < spec.size:
            raise ConfigError(
                f"group {spec.name!r} asks for {spec.pack.workers} of its {spec.size} workers on a node; this machine "
                f"is one node. Have all {spec.size} on one, or choose a launcher of several nodes"
            )
        if spec.beside is None:
            return Taken(spec.name, spec.needs, self._machine.share(spec.name, spec.needs, spec.size, taken))
        for other in taken:
            if other.group == spec.beside:
                shared = [other.devices[rank % len(other.devices)] for rank in range(spec.size)]
                return Taken(spec.name, Needs(), shared)
        raise ConfigError(
            f"group {spec.name!r} is to live beside {spec.beside!r}, which does not run; what does: "
            f"{', '.join(each.group for each in taken) or 'no group'}"
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
