"""Ranks of a trainer in processes of this machine, for its contract.

Example:

    told = ranks(registered, setup, size=2, play=lambda group: call(group, "attempt", shares))
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from slime_core.catalog import Registered
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import Choice, LauncherSetup, RankSetup, Rendezvous, TrainerSpec, WorkerGroup, WorkerGroupSpec

TARGET = "slime_testing.tensors.told_host:ToldHost"
LIMIT_S = 200.0
"""How long ranks may take to be built, and to answer a call."""
ResultT = TypeVar("ResultT")


def ranks(
    registered: Registered,
    setup: RankSetup,
    size: int,
    play: Callable[[WorkerGroup], Awaitable[ResultT]],
) -> ResultT:
    """What becomes of a group of a trainer's ranks, in processes of this machine.

    Raises:
        WorkerError: a rank could not be built, raised, died or did not answer.
    """

    async def run(scratch: Path) -> ResultT:
        launcher = LocalLauncher(LauncherSetup(_make, setup.seed, scratch=scratch))
        own = replace(setup, rendezvous=Rendezvous.file(scratch / "rendezvous"))
        trainer = Choice("trainer", registered.qualified, registered.plugin, setup.settings)
        spec = WorkerGroupSpec("kit", size, TARGET, {"trainer": trainer, "setup": own}, preload=_preload(registered))
        try:
            return await play(await launcher.start(spec, timeout_s=LIMIT_S))
        finally:
            await launcher.close()

    with tempfile.TemporaryDirectory(prefix="slime-kit-") as scratch:
        return asyncio.run(run(Path(scratch)))


async def call(group: WorkerGroup, method: str, arguments: Sequence[object] | None = None) -> list[object]:
    """Call every rank, and wait no longer than the kit does."""
    return await group.call(method, arguments, timeout_s=LIMIT_S)


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"the kit's launcher makes no {role} {name!r}")


def _preload(registered: Registered) -> tuple[str, ...]:
    """What the trainer says may be imported once for all its ranks."""
    return cast(TrainerSpec, registered.spec).preload
