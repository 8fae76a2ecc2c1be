"""LauncherContract: the requirements on every launcher, LCH-001 to LCH-020; it starts real workers, two at a time.

The checks of a class share one launcher; a failed check replaces it. Starting a cluster is slow.

Example:

    class TestSpawn(LauncherContract):
        choice = "slime-launcher-spawn/spawn"
"""

import asyncio
import contextlib
import inspect
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import ClassVar, TypeVar, cast
from unittest import SkipTest

from slime_core.errors import ConfigError, WorkerError
from slime_core.roles import (
    Launcher,
    LauncherSetup,
    LauncherSpec,
    Needs,
    Place,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_testing.blocking import blocks
from slime_testing.calling import is_running
from slime_testing.contract import check, require
from slime_testing.role import NOWHERE as NO_PLACE
from slime_testing.role import SEED, RoleContract

ResultT = TypeVar("ResultT")
GONE_S = 10.0
"""Seconds in which processes must be gone."""
_DRIVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_testing.launcher import drive; drive(int(sys.argv[2]))"
)


class Live:
    """A launcher shared by several checks, with its event loop and folder."""

    def __init__(self, build: Callable[[Path], Launcher], limit_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._loop = asyncio.Runner()
        self._limit_s = limit_s
        self.scratch = Path(self._folder.name)
        self.launcher = build(self.scratch)

    def run(self, play: Awaitable[ResultT]) -> ResultT:
        """The result of `play`, run in the launcher's event loop."""

        async def awaited() -> ResultT:
            return await play

        return self._loop.run(awaited())

    def close(self) -> None:
        """Close the launcher, within the limit, and its loop; remove the folder."""

        async def close() -> None:
            with contextlib.suppress(TimeoutError):  # LCH-008 reports it
                async with asyncio.timeout(self._limit_s):
                    await self.launcher.close()

        with self._folder, self._loop:
            self._loop.run(close())


def killed_while_it_drives(given: tuple[object, ...], limit_s: float) -> list[int]:
    """Processes that a driver had started, its workers and their children, when SIGKILL ended it.

    The driver is a new process: a fork would inherit connections without the threads that serve them.

    Raises:
        AssertionError: the driver could not start them.
    """
    told, tell = os.pipe()
    command = [sys.executable, "-P", "-c", _DRIVER, json.dumps(sys.path), str(tell)]
    with tempfile.TemporaryFile() as asked:
        asked.write(ForkingPickler.dumps(given))
        asked.seek(0)
        driver = subprocess.Popen(command, stdin=asked, pass_fds=(tell,))
    os.close(tell)
    try:
        if not select.select([told], [], [], limit_s)[0] or not (text := os.read(told, 1 << 16)):
            raise AssertionError("in a process of its own the launcher could not start a group, or not in time")
        return cast(list[int], json.loads(text))
    finally:
        os.close(told)
        driver.kill()
        driver.wait()


def drive(tell: int) -> None:
    """Main function of that driver: starts a group on the launcher that stdin describes, writes the pids, and waits."""
    choice, settings, plugins, scratch = ForkingPickler.loads(sys.stdin.buffer.read())
    subject = type("Driven", (LauncherContract,), {"choice": choice, "settings": settings, "plugins": plugins})

    async def start() -> None:
        group = await subject()._build(scratch).start(_spec({"start": 10}))
        spawned = await group.call("spawn")
        os.write(tell, json.dumps([pid for each in spawned for pid in cast(list[int], each)]).encode())
        await asyncio.Event().wait()

    asyncio.run(start())


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Captures this process's output and error descriptors, children included; the text is available afterwards."""
    with tempfile.TemporaryFile() as file:
        kept, text = [os.dup(1), os.dup(2)], ""
        try:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
            yield lambda: text
        finally:
            file.seek(0)
            text = file.read().decode(errors="replace")
            for descriptor, before in zip((1, 2), kept, strict=True):
                os.dup2(before, descriptor)
                os.close(before)


async def alive(pids: list[int]) -> list[int]:
    """Processes that still run after `GONE_S`."""
    end = time.monotonic() + GONE_S
    while left := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.05)
    return left


TARGET = "slime_testing.launched:Worker"
SIZE = 2
NAP_S = 0.5
"""Shortest duration of a call that exceeds its limit."""
NOWHERE = "kit-of-slime-core"
"""Name of a resource that no machine has."""
VARIABLE = "SLIME_KIT"
SAID = "the kit has said so"
LARGE = 50_000_000


class LauncherContract(RoleContract[LauncherSpec]):
    """Inherit and name the launcher. It gets an empty folder as `scratch`."""

    kind = LauncherSpec
    limit_s: ClassVar[float] = 60.0
    """Seconds in which a group of two must start, answer or fail."""
    local: ClassVar[bool] = True
    """Whether its workers are processes on this machine; False for clusters."""
    _live: "ClassVar[Live | None]" = None

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
    def test_workers_are_separate_processes_in_rank_order(self) -> None:
        """Each worker is `Class(rank, size, **arguments)` in a separate process; answers come in rank order."""

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
        """`arguments[rank]` goes to that worker; every call reaches the same object."""

        async def play(group: WorkerGroup) -> tuple[list[object], object]:
            await group.call("add", [1, 2])
            return await group.call("add", [10, 20]), await group.call_one(1, "add", 100)

        both, one = self._run(play)
        require(both == [21, 32], f"10 + 1 + 10 and 10 + 2 + 20 came back as {both}")
        require(one == 132, f"call_one(1, ...) came back as {one}; expected 132")

    @check("LCH-004", needs=("LCH-002",))
    def test_errors_of_workers_include_the_traceback(self) -> None:
        """Raise `WorkerError` with the worker's traceback: the driver's does not show what went wrong."""
        text = self._fails(lambda group: group.call("fail", ["of no use", "of no use"]), "a worker that raised")
        for part in ("RuntimeError", "of no use", "launched.py"):
            require(part in text, f"{part!r} is not in the error:\n{text}")

    @check("LCH-005", needs=("LCH-002",))
    def test_a_worker_that_dies_fails_the_call(self) -> None:
        """A dead process never answers: watch it, and raise `WorkerError` at once."""
        self._fails(lambda group: group.call("die", [3, 3]), "workers that ended without a word")

    @check("LCH-006", needs=("LCH-002",))
    def test_a_call_ends_at_its_timeout(self) -> None:
        """The run relies on `timeout_s`: raise `WorkerError` when it is over, even if the worker still runs."""
        late = self.limit_s + NAP_S
        began = time.monotonic()
        self._fails(lambda group: group.call("sleep", [late, late], timeout_s=NAP_S), "a call over its timeout_s")
        took = time.monotonic() - began
        require(took < late, f"a call with timeout_s={NAP_S} took {took:.1f} s")

    @check("LCH-007", needs=("LCH-001",))
    def test_a_worker_that_cannot_be_built_fails_the_start(self) -> None:
        """`start` returns when all workers are built; if one fails, raise `WorkerError` with its traceback."""

        async def start(launcher: Launcher, scratch: Path) -> str:
            return await self._error(launcher.start(_spec({"start": -1})), "a worker that raised in its constructor")

        require("cannot start at -1" in (text := self._with(start)), f"the worker's reason is not in it:\n{text}")

    @check("LCH-008", needs=("LCH-002",))
    def test_close_ends_every_process(self) -> None:
        """`close` may come twice, and while workers are busy; no worker may be left afterwards."""
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
                return await alive(pids)

        left = asyncio.run(play())
        require(not left, f"after close() processes {left} are still there")

    @check("LCH-009", needs=("LCH-002",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """The run awaits answers: starting and calling workers must not block the event loop."""

        async def act() -> None:
            async with self._launcher() as launcher:
                group = await self._within(launcher.start(_spec({"start": 10})))
                await group.call("sleep", [NAP_S, NAP_S])

        if stall := blocks(act):
            raise AssertionError(stall)

    @check("LCH-010", needs=("LCH-001",))
    def test_missing_resources_fail_the_start(self) -> None:
        """Waiting for resources that do not exist looks like a hang: raise `ConfigError` with the existing ones."""

        async def start(launcher: Launcher, scratch: Path) -> str:
            asked = replace(_spec({"start": 10}), needs=Needs(custom={NOWHERE: 1.0}))
            try:
                await self._within(launcher.start(asked))
            except ConfigError as error:
                return str(error)
            raise AssertionError(f"a group that needs {NOWHERE!r} was started: expected a ConfigError")

        require(NOWHERE in (text := self._with(start)), f"what is missing is not named:\n{text}")

    @check("LCH-011", needs=("LCH-002",))
    def test_workers_get_the_environment_variables(self) -> None:
        """Set `spec.environment` before the worker imports anything."""

        async def play(group: WorkerGroup) -> list[object]:
            return [await group.call_one(rank, "variable", VARIABLE) for rank in range(SIZE)]

        told = self._run(play, environment={VARIABLE: "here"})
        require(told == ["here"] * SIZE, f"{VARIABLE} is {told} in the workers; expected 'here'")

    @check("LCH-012", needs=("LCH-002",))
    def test_workers_receive_their_place(self) -> None:
        """Pass `place` to each worker, and list the same in `group.places`: ranks rendezvous at rank 0's `meeting`."""

        async def play(group: WorkerGroup) -> tuple[list[Place], list[object]]:
            return list(group.places), await group.call("where")

        places, told = self._run(play)
        require(told == places, f"group.places is {places}; the workers were told {told}")
        require([each.rank for each in places] == list(range(SIZE)), f"expected ranks 0 and 1, got {places}")
        ports = {(each.address, each.port) for each in places}
        require(len(ports) == SIZE and all(each.port for each in places), f"expected a port for each, got {ports}")
        first = f"{places[0].address}:{places[0].port}"
        require({each.rendezvous for each in places} == {first}, f"expected all to meet at {first}, got {places}")

    @check("LCH-013", needs=("LCH-005",))
    def test_watch_detects_a_worker_that_dies_between_calls(self) -> None:
        """`group.watch()` raises `WorkerError` then: the run must know before its next call."""

        async def dies(group: WorkerGroup) -> None:
            await group.call_one(1, "die_later", NAP_S)
            async with asyncio.timeout(GONE_S + NAP_S):
                await group.watch()

        self._fails(dies, "watch() of a group of which a worker died")

    @check("LCH-014", needs=("LCH-005", "LCH-008"))
    def test_child_processes_end_with_their_worker(self) -> None:
        """A server that a worker started must end with it, even after a crash: end the worker's process group."""
        for how in ("die", "close"):
            if left := self._run(partial(self._left, how)):
                raise AssertionError(f"processes {left} of workers are still there after {how}")

    @check("LCH-015", needs=("LCH-014",))
    def test_workers_end_when_the_driver_is_killed(self) -> None:
        """After SIGKILL the driver closes nothing: workers must detect its end, and stop with all their children."""
        if not self.local:
            raise SkipTest("the contract says local = False")
        if (name := self.registered.qualified) == NO_PLACE:
            raise SkipTest("another process finds the launcher by name: let `choice` be one, or a module's variable")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            given = (name, dict(self.settings), self.plugins, Path(scratch))
            pids = killed_while_it_drives(given, self.limit_s)
            left = asyncio.run(alive(pids))
        require(not left, f"processes {left} outlived a driver that was killed")

    @check("LCH-016", needs=("LCH-003",))
    def test_large_arguments_and_results_are_supported(self) -> None:
        """Batches and states are large: accept 50 MB of arguments and 100 MB of results."""

        async def play(group: WorkerGroup) -> object:
            return await group.call_one(1, "double", b"x" * LARGE)

        require(self._run(play) == b"xx" * LARGE, f"{LARGE} bytes, sent to be doubled, came back as something else")

    @check("LCH-017", needs=("LCH-002",))
    def test_worker_output_goes_to_a_log_file(self) -> None:
        """Write workers' output to a file under `setup.scratch`: the driver's terminal shows the run's progress."""

        async def play(group: WorkerGroup) -> None:
            await group.call("say", [SAID, SAID])

        with captured() as shown:
            scratch = self._run_in(play)
        require(SAID not in shown(), "a worker's output came to the driver's")
        logs = [path for path in scratch.rglob("*") if path.is_file() and SAID in path.read_text(errors="replace")]
        require(logs, f"what a worker printed is in no file under {scratch}")

    @check("LCH-018", needs=("LCH-008",))
    def test_close_is_called_on_every_worker(self) -> None:
        """Call the worker's `close` if it has one, so that it can stop a server or finish a file."""
        if not self.local:
            raise SkipTest("the contract says local = False")

        async def play(group: WorkerGroup) -> None:
            await group.close()

        with tempfile.TemporaryDirectory() as told:
            self._run(play, told=Path(told))
            found = sorted(path.name for path in Path(told).iterdir())
        require(found == ["closed-0", "closed-1"], f"`close` was called on {found or 'no worker'}; expected both")

    @check("LCH-019", needs=("LCH-002",))
    def test_workers_use_the_drivers_working_directory(self) -> None:
        """Run files may have relative paths: start workers in the driver's working directory, under the same path."""

        async def play(group: WorkerGroup) -> list[object]:
            return await group.call("folder")

        folders = self._run(play)
        require(folders == [str(Path.cwd())] * SIZE, f"workers are in {folders}; expected {Path.cwd()} for both")

    @check("LCH-020", needs=("LCH-003",))
    def test_unanswered_lists_the_busy_workers(self) -> None:
        """`unanswered()` names exactly the ranks that are busy with a call; a stalled run shows them.

        Add what is known of each rank: its process, its node.
        """

        async def play(group: WorkerGroup) -> tuple[Mapping[int, str], Mapping[int, str]]:
            asked = asyncio.create_task(group.call("sleep", [0.0, NAP_S]))
            during = dict[int, str]()
            while set(during) != {1} and not asked.done():
                await asyncio.sleep(NAP_S / 50)
                during = dict(group.unanswered()) or during
            await asked
            return during, group.unanswered()

        during, after = self._run(play)
        require(set(during) == {1}, f"while rank 1 alone was at a call, `unanswered()` was {dict(during)}")
        require(all(text.strip() for text in during.values()), f"nothing is said of rank 1: {dict(during)}")
        require(not after, f"when all had answered, `unanswered()` was {dict(after)}")

    @classmethod
    def teardown_class(cls) -> None:
        """Close the shared launcher; pytest calls it."""
        if (live := cls.__dict__.get("_live")) is not None:
            cls._live = None
            live.close()

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

    def _with(self, play: Callable[[Launcher, Path], Awaitable[ResultT]]) -> ResultT:
        cls = type(self)
        if (live := cls.__dict__.get("_live")) is None:
            cls._live = live = Live(self._build, self.limit_s)
        try:
            return live.run(play(live.launcher, live.scratch))
        except BaseException:
            cls.teardown_class()  # a failed check may leave this launcher in any state
            raise

    def _run(
        self,
        play: Callable[[WorkerGroup], Awaitable[ResultT]],
        *,
        environment: Mapping[str, str] | None = None,
        **arguments: object,
    ) -> ResultT:
        async def run(launcher: Launcher, scratch: Path) -> ResultT:
            spec = replace(_spec({"start": 10, **arguments}), environment=environment or {})
            group = await self._within(launcher.start(spec))
            try:
                return await self._within(play(group))
            finally:
                await self._within(group.close())

        return self._with(run)

    def _run_in(self, play: Callable[[WorkerGroup], Awaitable[object]]) -> Path:
        self._run(play)
        return cast(Live, type(self).__dict__["_live"]).scratch

    async def _left(self, how: str, group: WorkerGroup) -> list[int]:
        if not self.local:
            raise SkipTest("the contract says local = False")
        pids = [pid for each in await group.call("spawn") for pid in cast(list[int], each)]
        require(not (dead := [pid for pid in pids if not is_running(pid)]), f"processes {dead} did not start")
        if how == "close":
            await group.close()
        else:
            await self._error(group.call("die", [3, 3]), "workers that ended without a word")
        return await alive(pids)

    def _fails(self, play: Callable[[WorkerGroup], Awaitable[object]], what: str) -> str:
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
