"""LauncherContract: what every launcher must keep, LCH-001 to LCH-009; it starts real workers, two at a time.

Example:

    class TestSpawn(LauncherContract):
        choice = "slime-launcher-spawn/spawn"
"""

import asyncio
import contextlib
import inspect
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar
from unittest import SkipTest

from slime_core.errors import WorkerError
from slime_core.roles import Launcher, LauncherSetup, LauncherSpec, WorkerGroup, WorkerGroupSpec
from slime_core.testing.calling import blocks
from slime_core.testing.contract import check, require
from slime_core.testing.protected import SEED
from slime_core.testing.role import RoleContract

ResultT = TypeVar("ResultT")

TARGET = "slime_core.testing.launched:Worker"
SIZE = 2
NAP_S = 0.5
"""A call that is longer than its limit takes this long at least."""
GONE_S = 5.0
"""How long processes may take to be gone after `close`."""


class LauncherContract(RoleContract[LauncherSpec]):
    """Inherit and name the launcher. It is given an empty folder as `scratch`."""

    kind = LauncherSpec
    choice: ClassVar[str | LauncherSpec]
    """The launcher: a name for the catalog, or a spec."""
    limit_s: ClassVar[float] = 60.0
    """Seconds within which a group of two starts, answers or fails."""
    local: ClassVar[bool] = True
    """Whether its workers are processes of this machine; False for clusters."""

    @check("LCH-001")
    def test_the_factory_builds_a_launcher(self) -> None:
        """The core awaits `launcher.start(spec)` and `launcher.close()`: both are `async def`."""

        async def wrong() -> list[str]:
            with tempfile.TemporaryDirectory() as scratch:
                built: object = self._build(Path(scratch))
            return [name for name in ("start", "close") if not inspect.iscoroutinefunction(getattr(built, name, None))]

        found = asyncio.run(wrong())
        require(not found, f"{' and '.join(found)} must be `async def`")

    @check("LCH-002", needs=("LCH-001",))
    def test_workers_are_processes_that_know_their_place(self) -> None:
        """Each is `Class(rank, size, **arguments)` in a process of its own; answers come in rank order."""

        async def play(group: WorkerGroup) -> list[object]:
            require(group.size == SIZE, f"size is {group.size} of a group of {SIZE}")
            return await group.call("who")

        told = self._run(play)
        places = [each[:2] for each in told if isinstance(each, tuple)]
        require(places == [(0, SIZE), (1, SIZE)], f"expected ranks 0 and 1 of {SIZE}, in this order, got {told}")
        pids = {each[2] for each in told if isinstance(each, tuple)}
        require(len(pids) == SIZE and os.getpid() not in pids, "workers share a process, or the driver's")

    @check("LCH-003", needs=("LCH-002",))
    def test_each_worker_gets_its_argument_and_keeps_its_state(self) -> None:
        """`arguments[rank]` is for that worker; the object that was built is the one that is called, every time."""

        async def play(group: WorkerGroup) -> tuple[list[object], object]:
            await group.call("add", [1, 2])
            return await group.call("add", [10, 20]), await group.call_one(1, "add", 100)

        both, one = self._run(play)
        require(both == [21, 32], f"10 + 1 + 10 and 10 + 2 + 20 came back as {both}")
        require(one == 132, f"call_one(1, ...) came back as {one}; expected 132")

    @check("LCH-004", needs=("LCH-002",))
    def test_what_a_worker_raises_arrives_with_its_traceback(self) -> None:
        """Raise `WorkerError` with the worker's own traceback: the driver's says nothing about what went wrong."""
        text = self._fails(lambda group: group.call("fail", ["of no use", "of no use"]), "a worker that raised")
        for part in ("RuntimeError", "of no use", "launched.py"):
            require(part in text, f"{part!r} is not in the error:\n{text}")

    @check("LCH-005", needs=("LCH-002",))
    def test_a_worker_that_dies_is_noticed(self) -> None:
        """A process that is gone never answers: watch it, and raise `WorkerError` at once."""
        self._fails(lambda group: group.call("die", [3, 3]), "workers that ended without a word")

    @check("LCH-006", needs=("LCH-002",))
    def test_a_late_answer_is_not_waited_for(self) -> None:
        """`timeout_s` is a promise to the run: raise `WorkerError` when it is over, whatever the worker does."""
        late = self.limit_s + NAP_S
        began = time.monotonic()
        self._fails(lambda group: group.call("sleep", [late, late], timeout_s=NAP_S), "a call over its timeout_s")
        took = time.monotonic() - began
        require(took < late, f"a call with timeout_s={NAP_S} took {took:.1f} s")

    @check("LCH-007", needs=("LCH-001",))
    def test_a_worker_that_cannot_be_built_fails_the_start(self) -> None:
        """`start` returns when every worker is built; if one is not, raise `WorkerError` with its traceback."""

        async def start() -> str:
            async with self._launcher() as launcher:
                return await self._error(
                    launcher.start(_spec({"start": -1})), "a worker that raised in its constructor"
                )

        require("cannot start at -1" in (text := asyncio.run(start())), f"the worker's reason is not in it:\n{text}")

    @check("LCH-008", needs=("LCH-002",))
    def test_closing_ends_every_process(self) -> None:
        """`close` may come twice, and while workers are busy; afterwards none of them is left."""
        if not self.local:
            raise SkipTest("the contract says local = False")

        async def play() -> list[int]:
            async with self._launcher() as launcher:
                group = await self._within(launcher.start(_spec({"start": 10})))
                pids = [each[2] for each in await group.call("who") if isinstance(each, tuple)]
                busy = asyncio.ensure_future(group.call("sleep", [self.limit_s] * SIZE))
                await asyncio.sleep(NAP_S / 5)
                for _ in range(2):
                    await self._within(group.close())
                    await self._within(launcher.close())
                await asyncio.wait({busy}, timeout=self.limit_s)
                require(busy.done(), "a call under way when the group was closed never ended")
                busy.exception()
                return await _alive(pids)

        left = asyncio.run(play())
        require(not left, f"after close() processes {left} are still there")

    @check("LCH-009", needs=("LCH-002",))
    def test_the_event_loop_goes_on(self) -> None:
        """The run waits for answers with `await`: starting and calling workers must not hold up everything else."""

        async def act() -> None:
            async with self._launcher() as launcher:
                group = await self._within(launcher.start(_spec({"start": 10})))
                await group.call("sleep", [NAP_S, NAP_S])

        if stall := blocks(act):
            raise AssertionError(stall)

    def _build(self, scratch: Path) -> Launcher:
        return self.spec.factory(self.validated(), LauncherSetup(self.make, SEED, scratch=scratch))

    @contextlib.asynccontextmanager
    async def _launcher(self) -> AsyncIterator[Launcher]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            launcher = self._build(Path(scratch))
            try:
                yield launcher
            finally:
                await self._within(launcher.close())

    def _run(self, play: Callable[[WorkerGroup], Awaitable[ResultT]]) -> ResultT:
        """What came of a group of two that starts at 10."""

        async def run() -> ResultT:
            async with self._launcher() as launcher:
                return await self._within(play(await self._within(launcher.start(_spec({"start": 10})))))

        return asyncio.run(run())

    def _fails(self, play: Callable[[WorkerGroup], Awaitable[object]], what: str) -> str:
        """The text of the `WorkerError` that a call must end with."""

        async def error(group: WorkerGroup) -> str:
            return await self._error(play(group), what)

        return self._run(error)

    async def _error(self, call: Awaitable[object], what: str) -> str:
        try:
            await self._within(call)
        except WorkerError as error:
            return str(error)
        raise AssertionError(f"{what}: expected a WorkerError, and there was none")

    async def _within(self, call: Awaitable[ResultT]) -> ResultT:
        try:
            async with asyncio.timeout(self.limit_s):
                return await call
        except TimeoutError:
            raise AssertionError(f"no end within {self.limit_s:g} s") from None


def _spec(arguments: Mapping[str, object]) -> WorkerGroupSpec:
    return WorkerGroupSpec("kit", SIZE, TARGET, arguments)


async def _alive(pids: list[int]) -> list[int]:
    """Which processes still run, after a while."""
    end = time.monotonic() + GONE_S
    while left := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.05)
    return left


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
