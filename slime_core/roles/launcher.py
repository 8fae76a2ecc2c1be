"""Launcher: starts groups of worker processes from picklable descriptions.

Example:

    adders = WorkerGroupSpec("adders", 2, "slime_testing.launched:Worker", {"start": 40})
    group = await launcher.start(adders, timeout_s=600.0)
    assert await group.call("add", [1, 2]) == [41, 42]      # one argument per worker, in rank order
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from slime_core.roles.plugin_set import PluginSet
from slime_core.roles.spec import Settings, Setup, Spec


@dataclass(frozen=True, slots=True)
class Needs:
    """What one worker needs of its machine.

    Raises:
        ValueError: less than nothing, or more than one GPU and a part of another.
    """

    cpus: float = 1.0
    """Processor cores; its libraries use as many threads."""
    gpus: float = 0.0
    """GPUs, whole ones or a part of one."""
    memory: int | None = None
    """Bytes of main memory, for launchers of clusters; None: it does not say."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Whatever else a cluster counts, by its name there."""

    def __post_init__(self) -> None:
        numbers = (self.cpus, self.gpus, self.memory or 0, *self.custom.values())
        if any(each < 0 or not math.isfinite(each) for each in numbers):
            raise ValueError(f"{self}: expected numbers of at least 0")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus = {self.gpus}: expected a whole number, or a part of one GPU")

    def __mul__(self, workers: int) -> "Needs":
        """What so many workers need together."""
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
    """Where one worker lives."""

    rank: int
    """Its number in the group."""
    local_rank: int = 0
    """Its number among those of the group on its node."""
    node: int = 0
    """Number of its node among those of the group."""
    nodes: int = 1
    """How many nodes the group lies on."""
    address: str = "127.0.0.1"
    """Address of its node that the others reach."""
    devices: tuple[str, ...] = ()
    """GPUs that are its own, as its node names them; it sees no others. Empty where it asked for none."""
    port: int = 0
    """A port of its node that is kept for it; 0 where a launcher keeps none."""
    meeting: str = ""
    """`ADDRESS:PORT` of rank 0, where the group can meet."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of a group meet."""

    url: str
    """`file:///PATH`, a file that does not exist yet, on one node; else `tcp://ADDRESS:PORT`, where rank 0 listens."""

    @classmethod
    def file(cls, path: Path) -> Self:
        """In a file that does not exist yet; its folder does.

        torch reads the URL without decoding escapes, and drops or cuts at some characters. A folder whose path would
        not arrive as it is gets an alias: a descriptor that this process holds open until it ends.
        """
        whole = str(path.absolute())
        if not whole.isascii() or urlsplit(f"file://{whole}").path != whole:
            folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
            whole = f"/proc/{os.getpid()}/fd/{folder}/{path.name}"
        return cls(f"file://{whole}")


@dataclass(frozen=True, slots=True)
class WorkerGroupSpec:
    """What to start; everything in it must pickle."""

    name: str
    """For logs and errors: "trainer", "engine"."""
    size: int
    """Processes."""
    target: str
    """`package.module:Class`, built in each process as `Class(rank, size, **arguments)`, with `place=Place(...)` if it
    takes one. Its optional `close` is called before the process ends."""
    arguments: Mapping[str, object]
    """Keyword arguments of the class."""
    needs: Needs = Needs()
    """What each worker needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that each worker has from its start, besides the driver's and the launcher's own."""
    preload: tuple[str, ...] = ()
    """Slow modules that start no thread, imported once for all workers; workers with GPUs import them themselves."""
    per_node: int | None = None
    """Workers on each node, in order of their ranks; None: on as few nodes as have room."""
    beside: str | None = None
    """Name of a group that runs, whose places and devices this one shares, rank by rank, instead of ones of its own."""


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A group that a run will start, as far as it is known before anything starts."""

    name: str
    """As `WorkerGroupSpec.name`."""
    size: int
    """Processes."""
    needs: Needs
    """What each of them needs."""
    beside: str | None = None
    """As `WorkerGroupSpec.beside`."""


@dataclass(frozen=True, slots=True)
class LauncherSetup(Setup):
    """What a launcher's factory is given."""

    scratch: Path
    """A directory for logs and sockets, inside the run folder."""
    plugins: PluginSet | None = None
    """Which plugins every worker must have, in the driver's versions; None: they are not compared."""


@runtime_checkable
class WorkerGroup(Protocol):
    """Running workers, called by method name in rank order."""

    @property
    def size(self) -> int:
        """Processes."""
        ...

    @property
    def places(self) -> Sequence[Place]:
        """Where each of them lives, in rank order."""
        ...

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call `worker.method(argument)` on every worker at once (without argument when None).

        Raises:
            WorkerError: a worker raised, died or did not answer in time; the group is then closed.
        """
        ...

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call one worker; errors as in `call`."""
        ...

    def unanswered(self) -> Mapping[int, str]:
        """Workers at a call that they have not answered: rank -> what is known of each, "pid 4711"."""
        ...

    async def watch(self) -> None:
        """Wait until the group is closed.

        Raises:
            WorkerError: a worker died between calls; the group is then closed.
        """
        ...

    async def close(self) -> None:
        """Let idle workers close, then end all, with whatever they have started; idempotent."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Starts worker groups."""

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        """Start the group; returns when every worker is built.

        Raises:
            WorkerError: a worker could not be built, and its traceback; or not in time, and which ranks those are.
            ConfigError: the group needs what there is not; says what there is, at once.
        """
        ...

    async def close(self) -> None:
        """Stop every group that it started; idempotent."""
        ...


@dataclass(frozen=True)
class LauncherSpec(Spec[Launcher]):
    """Offers a launcher."""

    role: ClassVar[str] = "launcher"
    check: Callable[[Settings, Sequence[GroupUse]], None] | None = None
    """Sees, before anything starts, that what it needs is installed and that there can be room; raises ConfigError."""
