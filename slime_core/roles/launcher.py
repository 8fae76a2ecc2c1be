"""Launcher: starts groups of worker processes from picklable descriptions.

Example:

    group = await launcher.start(WorkerGroupSpec("trainer", 2, "slime_core.local.rank:RankWorker", {...}))
    results = await group.call("train_step", [batch_0, batch_1])        # one argument per worker, in rank order
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Setup, Spec, Stability


@dataclass(frozen=True, slots=True)
class WorkerGroupSpec:
    """What to start; everything in it must pickle."""

    name: str
    """For logs and errors: "trainer", "engine"."""
    size: int
    """Processes."""
    target: str
    """`package.module:Class`, built in each process as `Class(rank, size, **arguments)`."""
    arguments: Mapping[str, object]
    """Keyword arguments of the class."""


@dataclass(frozen=True, slots=True)
class LauncherSetup(Setup):
    """What a launcher's factory is given."""

    scratch: Path
    """A directory for logs and sockets, inside the run folder."""


@runtime_checkable
class WorkerGroup(Protocol):
    """Running workers, called by method name in rank order."""

    @property
    def size(self) -> int:
        """Processes."""
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

    async def close(self) -> None:
        """Stop all workers; idempotent."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Starts worker groups."""

    async def start(self, spec: WorkerGroupSpec) -> WorkerGroup:
        """Start the group; returns when every worker is built.

        Raises:
            WorkerError: a worker could not be built; carries its traceback.
        """
        ...

    async def close(self) -> None:
        """Stop every group that it started; idempotent."""
        ...


@dataclass(frozen=True)
class LauncherSpec(Spec[Launcher]):
    """Offers a launcher."""

    role: ClassVar[str] = "launcher"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
