"""Launcher: starts groups of worker processes from picklable descriptions.

Example:

    adders = WorkerGroupSpec("adders", 2, "slime_testing.launcher_worker:Worker", {"start": 40})
    group = await launcher.start(adders, timeout_s=600.0)
    assert await group.call("add", [1, 2]) == [41, 42]      # one argument per worker, in rank order
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable
from urllib.parse import urlsplit

from slime_core.roles.plugin_set import PluginSet
from slime_core.roles.spec import Settings, Setup, Spec


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of one worker.

    Raises:
        ValueError: a number is negative, or `gpus` is over 1 and not whole.
    """

    cpus: float = 1.0
    """Processor cores, and the number of threads of its libraries."""
    gpus: float = 0.0
    """Whole GPUs, or a fraction of one."""
    memory: int | None = None
    """Bytes of main memory, for cluster launchers; None: unspecified."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Other resources of a cluster, by the cluster's names."""

    def __post_init__(self) -> None:
        numbers = (self.cpus, self.gpus, self.memory or 0, *self.custom.values())
        if any(each < 0 or not math.isfinite(each) for each in numbers):
            raise ValueError(f"{self}: expected numbers of at least 0")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus = {self.gpus}: expected a whole number, or a part of one GPU")

    def __mul__(self, workers: int) -> "Needs":
        """Total resources of this many workers."""
        memory = None if self.memory is None else self.memory * workers
        custom = {name: each * workers for name, each in self.custom.items()}
        gpus = self.gpus * workers
        return Needs(self.cpus * workers, gpus if gpus <= 1 else float(math.ceil(gpus)), memory, custom)

    def __str__(self) -> str:
        memory = [] if self.memory is None else [f"{self.memory / 2**30:g} GiB of memory"]
        custom = [f"{each:g} {name}" for name, each in sorted(self.custom.items())]
        gpus = [f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'}"] if self.gpus else []
        return ", ".join([f"{self.cpus:g} core{'' if self.cpus == 1 else 's'}", *gpus, *memory, *custom])


@dataclass(frozen=True, slots=True)
class Place:
    """Location of one worker."""

    rank: int
    """The worker's number in the group."""
    local_rank: int = 0
    """The worker's number among the group's workers on its node."""
    node: int = 0
    """Number of its node among the group's nodes."""
    nodes: int = 1
    """How many nodes the group spans."""
    address: str = "127.0.0.1"
    """Address at which other nodes reach its node."""
    devices: tuple[str, ...] = ()
    """The only GPUs that it sees, by their names on its node. Empty if it needs none."""
    port: int = 0
    """A port on its node that is reserved for it; 0 if the launcher reserves none."""
    rendezvous: str = ""
    """`ADDRESS:PORT` of rank 0 for the group's rendezvous."""


def file_rendezvous(path: Path) -> str:
    """URL for a process group's rendezvous in a file that does not exist yet, in an existing folder.

    torch does not decode escapes in the URL, and drops or cuts at some characters. For a path with such characters,
    the URL uses a file descriptor under /proc, which this process keeps open until it ends.
    """
    whole = str(path.absolute())
    if not whole.isascii() or urlsplit(f"file://{whole}").path != whole:
        folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        whole = f"/proc/{os.getpid()}/fd/{folder}/{path.name}"
    return f"file://{whole}"


@dataclass(frozen=True, slots=True)
class WorkerGroupSpec:
    """What to start; everything in it must pickle."""

    name: str
    """For logs and errors: "trainer", "engine"."""
    size: int
    """Processes."""
    target: str = ""
    """`package.module:Class`, built in each process as `Class(rank, size, **arguments)`, with `place=Place(...)` if it
    accepts `place`. Its optional `close` is called before the process ends."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments of the class."""
    needs: Needs = Needs()
    """Resources of each worker."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of each worker, added to the driver's and the launcher's."""
    preload: tuple[str, ...] = ()
    """Slow modules that start no thread. Imported once for all workers; a worker with GPUs imports them itself."""
    per_node: int | None = None
    """Workers on each node, in rank order; None: as few nodes as possible."""
    colocate_with: str | None = None
    """Name of a running group whose places and devices this group shares, rank by rank."""


@dataclass(frozen=True, slots=True)
class LauncherSetup(Setup):
    """What a launcher's factory receives."""

    scratch: Path
    """A directory for logs and sockets, inside the run folder."""
    plugins: PluginSet | None = None
    """Plugins that every worker must have in the driver's versions; None: not compared."""


@runtime_checkable
class WorkerGroup(Protocol):
    """Running workers, called by method name in rank order."""

    @property
    def size(self) -> int:
        """Processes."""

    @property
    def places(self) -> Sequence[Place]:
        """Location of each worker, in rank order."""

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call `worker.method(argument)` on every worker at once (without argument when None).

        Raises:
            WorkerError: a worker raised, died or did not answer in time; the group is then closed.
        """

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call one worker; errors as in `call`."""

    def unanswered(self) -> Mapping[int, str]:
        """Workers with an unfinished call: rank -> a description such as "pid 4711"."""

    async def watch(self) -> None:
        """Wait until the group is closed.

        Raises:
            WorkerError: a worker died between calls; the group is then closed.
        """

    async def close(self) -> None:
        """Let idle workers close, then end all workers and their child processes; idempotent."""


@runtime_checkable
class Launcher(Protocol):
    """Starts worker groups."""

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        """Start the group; returns when every worker is built.

        Raises:
            WorkerError: a worker could not be built (with its traceback), or not in time (with its rank).
            ConfigError: the group needs more than exists; raised at once, with what exists.
        """

    async def close(self) -> None:
        """Stop every group that it started; idempotent."""


@dataclass(frozen=True)
class LauncherSpec(Spec[Launcher]):
    """Offers a launcher: what starts worker processes."""

    role: ClassVar[str] = "launcher"
    check: Callable[[Settings, Sequence[WorkerGroupSpec]], None] | None = None
    """Raises ConfigError, before anything starts, if software is missing or the groups, without targets, do not fit."""
