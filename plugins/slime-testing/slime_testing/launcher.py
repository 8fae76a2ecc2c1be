"""LauncherContract: the requirements on every launcher, LCH-001 to LCH-020. It starts groups of two real workers.

The checks of a class share one launcher, since starting a cluster is slow. A failed check replaces it.

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
from slime_testing.role import NOWHERE, SEED, RoleContract

ResultT = TypeVar("ResultT")
GONE_S = 10.0
"""Seconds in which processes must end."""
_DRIVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_testing.launcher import drive; drive(int(sys.argv[2]))"
)


class SharedLauncher:
    """A launcher that several checks share, with its event loop and folder."""

    def __init__(self, build: Callable[[Path], Launcher], limit_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._loop = asyncio.Runner()
        self._limit_s = limit_s
        self.scratch = Path(self._folder.name)
        self.launcher = build(self.scratch)

    def run(self, use: Awaitable[ResultT]) -> ResultT:
        """The result of `use`, awaited in the launcher's event loop."""

        async def awaited() -> ResultT:
            return await use

        return self._loop.run(awaited())

    def close(self) -> None:
        """Close the launcher and its event loop, and remove the folder."""

        async def close() -> None:
            with contextlib.suppress(TimeoutError):  # LCH-008 reports it
                async with asyncio.timeout(self._limit_s):
                    await self.launcher.close()

        with self._folder, self._loop:
            self._loop.run(close())


def pids_of_killed_driver(subject: tuple[object, ...], limit_s: float) -> list[int]:
    """Start a group in a new driver process, kill the driver, and return the pids of its workers and their children.

    The driver is no fork, which would inherit connections without the threads that serve them.

    Raises:
        AssertionError: the driver could not start the group.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-c", _DRIVER, json.dumps(sys.path), str(writing)]
    with tempfile.TemporaryFile() as stdin:
        stdin.write(ForkingPickler.dumps(subject))
        stdin.seek(0)
        driver = subprocess.Popen(command, stdin=stdin, pass_fds=(writing,))
    os.close(writing)
    try:
        if not select.select([reading], [], [], limit_s)[0] or not (text := os.read(reading, 1 << 16)):
            raise AssertionError(f"in a new driver process, the launcher did not start a group within {limit_s:g} s")
        return cast(list[int], json.loads(text))
    finally:
        os.close(reading)
        driver.kill()
        driver.wait()


def drive(output: int) -> None:
    """Main function of that driver: starts a group on the launcher given by stdin, writes all pids, and waits."""
    choice, settings, plugins, scratch = ForkingPickler.loads(sys.stdin.buffer.read())
    subject = type("Driven", (LauncherContract,), {"choice": choice, "settings": settings, "plugins": plugins})

    async def start() -> None:
        group = await subject()._build(scratch).start(_spec({"start": 10}))
        spawned = await group.call("spawn")
        os.write(output, json.dumps([pid for each in spawned for pid in cast(list[int], each)]).encode())
        await asyncio.Event().wait()

    asyncio.run(start())


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Capture stdout and stderr of this process and its children; the yielded function returns the text afterwards."""
    with tempfile.TemporaryFile() as file:
        originals, text = [os.dup(1), os.dup(2)], ""
        try:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
            yield lambda: text
        finally:
            file.seek(0)
            text = file.read().decode(errors="replace")
            for descriptor, before in zip((1, 2), originals, strict=True):
                os.dup2(before, descriptor)
                os.close(before)


async def still_running(pids: list[int]) -> list[int]:
    """Processes that still run after `GONE_S`."""
    end = time.monotonic() + GONE_S
    while left := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.05)
    return left


TARGET = "slime_testing.launcher_worker:Worker"
SIZE = 2
NAP_S = 0.5
"""Time limit of a call that exceeds it, and duration of short calls."""
NO_SUCH_RESOURCE = "kit-of-slime-core"
"""Name of a resource that no machine has."""
VARIABLE = "SLIME_KIT"
PRINTED = "printed by a worker of the kit"
LARGE = 50_000_000


class LauncherContract(RoleContract[LauncherSpec]):
    """Contract of launchers: inherit it and set `choice`. The launcher receives an empty folder as `scratch`."""

    kind = LauncherSpec
    limit_s: ClassVar[float] = 60.0
    """Seconds in which a group of two workers must start, answer or fail."""
    local: ClassVar[bool] = True
    """Whether the workers are processes on this machine; False for clusters."""
    _shared: "ClassVar[SharedLauncher | None]" = None

    @check("LCH-001")
    def test_the_factory_builds_a_launcher(self) -> None:
        """The core awaits `launcher.start(spec)` and `launcher.close()`, so both are `async def`."""

        async def wrong() -> list[str]:
            with tempfile.TemporaryDirectory() as scratch:
                built: object = self._build(Path(scratch))
            return [name for name in ("start", "close") if not inspect.iscoroutinefunction(getattr(built, name, None))]

        found = asyncio.run(wrong())
        require(not found, f"{' and '.join(found)} must be `async def`")

    @check("LCH-002", needs=("LCH-001",))
    def test_workers_are_separate_processes_in_rank_order(self) -> None:
        """Build each worker as `Class(rank, size, **arguments)` in a separate process; return results in rank order."""

        async def use(group: WorkerGroup) -> list[object]:
            require(group.size == SIZE, f"group.size is {group.size}; expected {SIZE}")
            return await group.call("who")

        results = self._run(use)
        ranks = [each[:2] for each in results if isinstance(each, tuple)]
        require(ranks == [(0, SIZE), (1, SIZE)], f"expected results of ranks 0 and 1 of {SIZE} in order, got {results}")
        pids = {each[2] for each in results if isinstance(each, tuple)}
        separate = len(pids) == SIZE and os.getpid() not in pids
        require(separate, f"workers have pids {sorted(pids)}, the driver {os.getpid()}; expected separate processes")

    @check("LCH-003", needs=("LCH-002",))
    def test_each_worker_gets_its_argument_and_keeps_its_state(self) -> None:
        """Worker `rank` receives `arguments[rank]`, and every call uses the same worker object."""

        async def use(group: WorkerGroup) -> tuple[list[object], object]:
            await group.call("add", [1, 2])
            return await group.call("add", [10, 20]), await group.call_one(1, "add", 100)

        both, one = self._run(use)
        require(both == [21, 32], f"the workers' sums 10 + 1 + 10 and 10 + 2 + 20 are {both}; expected [21, 32]")
        require(one == 132, f"call_one(1, ...) returned {one}; expected 132")

    @check("LCH-004", needs=("LCH-002",))
    def test_errors_of_workers_include_the_traceback(self) -> None:
        """Raise `WorkerError` with the worker's traceback: the driver's traceback does not show the cause."""
        text = self._fails(lambda group: group.call("fail", ["of no use", "of no use"]), "a worker that raised")
        for part in ("RuntimeError", "of no use", "launcher_worker.py"):
            require(part in text, f"the error does not contain {part!r}:\n{text}")

    @check("LCH-005", needs=("LCH-002",))
    def test_a_worker_that_dies_fails_the_call(self) -> None:
        """A dead process never answers. Watch it, and raise `WorkerError` at once."""
        self._fails(lambda group: group.call("die", [3, 3]), "workers that died during a call")

    @check("LCH-006", needs=("LCH-002",))
    def test_a_call_ends_at_its_timeout(self) -> None:
        """After `timeout_s`, raise `WorkerError`, even if the worker still runs."""
        late = self.limit_s + NAP_S
        began = time.monotonic()
        self._fails(lambda group: group.call("sleep", [late, late], timeout_s=NAP_S), "a call beyond its timeout_s")
        took = time.monotonic() - began
        require(took < late, f"a call with timeout_s={NAP_S} took {took:.1f} s; it waits for the worker")

    @check("LCH-007", needs=("LCH-001",))
    def test_a_worker_that_cannot_be_built_fails_the_start(self) -> None:
        """`start` waits until all workers are built. If one fails, raise `WorkerError` with its traceback."""

        async def start(launcher: Launcher, scratch: Path) -> str:
            return await self._error(launcher.start(_spec({"start": -1})), "a worker that raised in its constructor")

        require("cannot start at -1" in (text := self._with(start)), f"the error lacks the worker's error:\n{text}")

    @check("LCH-008", needs=("LCH-002",))
    def test_close_ends_every_process(self) -> None:
        """`close` ends all workers, even busy ones, and a second `close` does nothing."""
        if not self.local:
            raise SkipTest("the contract sets local = False")

        async def use() -> list[int]:
            async with self._launcher() as launcher:
                group = await self._within(launcher.start(_spec({"start": 10})))
                pids = [each[2] for each in await group.call("who") if isinstance(each, tuple)]
                busy = asyncio.ensure_future(group.call("sleep", [self.limit_s] * SIZE))
                await asyncio.sleep(NAP_S / 5)
                for _ in range(2):
                    await self._within(group.close())
                    await self._within(launcher.close())
                await asyncio.wait({busy}, timeout=self.limit_s)
                require(busy.done(), "a call that was running at close() did not end")
                busy.exception()
                return await still_running(pids)

        left = asyncio.run(use())
        require(not left, f"processes {left} still run {GONE_S:g} s after close()")

    @check("LCH-009", needs=("LCH-002",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """Starting and calling workers must not block the event loop. Use `await` or `asyncio.to_thread`."""

        async def make_call() -> None:
            async with self._launcher() as launcher:
                group = await self._within(launcher.start(_spec({"start": 10})))
                await group.call("sleep", [NAP_S, NAP_S])

        if stall := blocks(make_call):
            raise AssertionError(stall)

    @check("LCH-010", needs=("LCH-001",))
    def test_missing_resources_fail_the_start(self) -> None:
        """If a resource does not exist, raise `ConfigError` with the existing ones: waiting would look like a hang."""

        async def start(launcher: Launcher, scratch: Path) -> str:
            spec = replace(_spec({"start": 10}), needs=Needs(custom={NO_SUCH_RESOURCE: 1.0}))
            try:
                await self._within(launcher.start(spec))
            except ConfigError as error:
                return str(error)
            raise AssertionError(f"a group that needs {NO_SUCH_RESOURCE!r} was started; expected a ConfigError")

        named = NO_SUCH_RESOURCE in (text := self._with(start))
        require(named, f"the error does not name the missing resource {NO_SUCH_RESOURCE!r}:\n{text}")

    @check("LCH-011", needs=("LCH-002",))
    def test_workers_get_the_environment_variables(self) -> None:
        """Set the variables of `spec.environment` in each worker before it imports anything."""

        async def use(group: WorkerGroup) -> list[object]:
            return [await group.call_one(rank, "variable", VARIABLE) for rank in range(SIZE)]

        values = self._run(use, environment={VARIABLE: "here"})
        require(values == ["here"] * SIZE, f"{VARIABLE} is {values} in the workers; expected 'here'")

    @check("LCH-012", needs=("LCH-002",))
    def test_workers_receive_their_place(self) -> None:
        """Pass a `place` to each worker, and list the same ones in `group.places`. All rendezvous at rank 0's port."""

        async def use(group: WorkerGroup) -> tuple[list[Place], list[object]]:
            return list(group.places), await group.call("where")

        places, received = self._run(use)
        require(received == places, f"group.places is {places}; the workers received {received}")
        require([each.rank for each in places] == list(range(SIZE)), f"expected ranks 0 and 1, got {places}")
        ports = {(each.address, each.port) for each in places}
        different = len(ports) == SIZE and all(each.port for each in places)
        require(different, f"expected a different port for each worker, got {ports}")
        first = f"{places[0].address}:{places[0].port}"
        require({each.rendezvous for each in places} == {first}, f"expected rendezvous {first} for all, got {places}")

    @check("LCH-013", needs=("LCH-005",))
    def test_watch_detects_a_worker_that_dies_between_calls(self) -> None:
        """`group.watch()` raises `WorkerError` when a worker dies, so that the run fails before its next call."""

        async def dies(group: WorkerGroup) -> None:
            await group.call_one(1, "die_later", NAP_S)
            async with asyncio.timeout(GONE_S + NAP_S):
                await group.watch()

        self._fails(dies, "watch() of a group with a dead worker")

    @check("LCH-014", needs=("LCH-005", "LCH-008"))
    def test_child_processes_end_with_their_worker(self) -> None:
        """Child processes of a worker, such as servers, end with it, even after a crash. Kill its process group."""
        for how in ("die", "close"):
            if left := self._run(partial(self._left, how)):
                raise AssertionError(f"child processes {left} of workers still run {GONE_S:g} s after {how}()")

    @check("LCH-015", needs=("LCH-014",))
    def test_workers_end_when_the_driver_is_killed(self) -> None:
        """A driver that receives SIGKILL closes nothing. Workers detect its death, and end with their children."""
        if not self.local:
            raise SkipTest("the contract sets local = False")
        if (name := self.registered.qualified) == NOWHERE:
            raise SkipTest("another process must find the launcher: set `choice` to a name, or use a module variable")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            subject = (name, dict(self.settings), self.plugins, Path(scratch))
            pids = pids_of_killed_driver(subject, self.limit_s)
            left = asyncio.run(still_running(pids))
        require(not left, f"processes {left} still run {GONE_S:g} s after the driver was killed")

    @check("LCH-016", needs=("LCH-003",))
    def test_large_arguments_and_results_are_supported(self) -> None:
        """Batches and states are large. Support arguments of 50 MB and results of 100 MB."""

        async def use(group: WorkerGroup) -> object:
            return await group.call_one(1, "double", b"x" * LARGE)

        same = self._run(use) == b"xx" * LARGE
        require(same, f"a worker received {LARGE} bytes and returned them twice, but the result is different")

    @check("LCH-017", needs=("LCH-002",))
    def test_worker_output_goes_to_a_log_file(self) -> None:
        """Write workers' output to files in `setup.scratch`: the terminal shows the progress of the run."""

        async def use(group: WorkerGroup) -> None:
            await group.call("say", [PRINTED, PRINTED])

        with captured() as shown:
            scratch = self._run_in(use)
        require(PRINTED not in shown(), "a worker's output is in the output of the driver; write it to a file")
        logs = [path for path in scratch.rglob("*") if path.is_file() and PRINTED in path.read_text(errors="replace")]
        require(logs, f"no file in {scratch} contains what a worker printed")

    @check("LCH-018", needs=("LCH-008",))
    def test_close_is_called_on_every_worker(self) -> None:
        """Before a worker ends, call its `close` if it has one, so that it can stop a server or finish a file."""
        if not self.local:
            raise SkipTest("the contract sets local = False")

        async def use(group: WorkerGroup) -> None:
            await group.close()

        with tempfile.TemporaryDirectory() as folder:
            self._run(use, marker_folder=Path(folder))
            found = sorted(path.name for path in Path(folder).iterdir())
        require(found == ["closed-0", "closed-1"], f"`close` was called on {found or 'no worker'}; expected both")

    @check("LCH-019", needs=("LCH-002",))
    def test_workers_use_the_drivers_working_directory(self) -> None:
        """Run files may contain relative paths. Start workers in the working directory of the driver."""

        async def use(group: WorkerGroup) -> list[object]:
            return await group.call("folder")

        folders = self._run(use)
        require(folders == [str(Path.cwd())] * SIZE, f"workers run in {folders}; expected {Path.cwd()} for both")

    @check("LCH-020", needs=("LCH-003",))
    def test_unanswered_lists_the_busy_workers(self) -> None:
        """`unanswered()` lists exactly the ranks that are busy with a call; a stalled run displays them.

        Describe each rank, for example its process and its node.
        """

        async def use(group: WorkerGroup) -> tuple[Mapping[int, str], Mapping[int, str]]:
            call = asyncio.create_task(group.call("sleep", [0.0, NAP_S]))
            during = dict[int, str]()
            while set(during) != {1} and not call.done():
                await asyncio.sleep(NAP_S / 50)
                during = dict(group.unanswered()) or during
            await call
            return during, group.unanswered()

        during, after = self._run(use)
        require(set(during) == {1}, f"unanswered() is {dict(during)} while only rank 1 is busy")
        require(all(text.strip() for text in during.values()), f"unanswered() does not describe rank 1: {dict(during)}")
        require(not after, f"unanswered() is {dict(after)} after all ranks have answered; expected no rank")

    @classmethod
    def teardown_class(cls) -> None:
        """Close the shared launcher; pytest calls it."""
        if (shared := cls.__dict__.get("_shared")) is not None:
            cls._shared = None
            shared.close()

    def _build(self, scratch: Path) -> Launcher:
        return self.spec.factory(self.make_settings(), LauncherSetup(self.make, SEED, scratch=scratch))

    @contextlib.asynccontextmanager
    async def _launcher(self) -> AsyncIterator[Launcher]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            launcher = self._build(Path(scratch))
            try:
                yield launcher
            finally:
                await self._within(launcher.close())

    def _with(self, use: Callable[[Launcher, Path], Awaitable[ResultT]]) -> ResultT:
        cls = type(self)
        if (shared := cls.__dict__.get("_shared")) is None:
            cls._shared = shared = SharedLauncher(self._build, self.limit_s)
        try:
            return shared.run(use(shared.launcher, shared.scratch))
        except BaseException:
            cls.teardown_class()  # a failed check may leave this launcher in any state
            raise

    def _run(
        self,
        use: Callable[[WorkerGroup], Awaitable[ResultT]],
        *,
        environment: Mapping[str, str] | None = None,
        **arguments: object,
    ) -> ResultT:
        async def run(launcher: Launcher, scratch: Path) -> ResultT:
            spec = replace(_spec({"start": 10, **arguments}), environment=environment or {})
            group = await self._within(launcher.start(spec))
            try:
                return await self._within(use(group))
            finally:
                await self._within(group.close())

        return self._with(run)

    def _run_in(self, use: Callable[[WorkerGroup], Awaitable[object]]) -> Path:
        self._run(use)
        return cast(SharedLauncher, type(self).__dict__["_shared"]).scratch

    async def _left(self, how: str, group: WorkerGroup) -> list[int]:
        if not self.local:
            raise SkipTest("the contract sets local = False")
        pids = [pid for each in await group.call("spawn") for pid in cast(list[int], each)]
        require(
            not (dead := [pid for pid in pids if not is_running(pid)]), f"processes {dead} of workers were not running"
        )
        if how == "close":
            await group.close()
        else:
            await self._error(group.call("die", [3, 3]), "workers that died during a call")
        return await still_running(pids)

    def _fails(self, use: Callable[[WorkerGroup], Awaitable[object]], what: str) -> str:
        async def error(group: WorkerGroup) -> str:
            return await self._error(use(group), what)

        return self._run(error)

    async def _error(self, call: Awaitable[object], what: str) -> str:
        try:
            await self._within(call)
        except WorkerError as error:
            return str(error)
        raise AssertionError(f"{what} raised no error; expected a WorkerError")

    async def _within(self, call: Awaitable[ResultT]) -> ResultT:
        try:
            async with asyncio.timeout(self.limit_s):
                return await call
        except TimeoutError:
            raise AssertionError(f"it took longer than limit_s = {self.limit_s:g} s") from None


def _spec(arguments: Mapping[str, object]) -> WorkerGroupSpec:
    return WorkerGroupSpec("kit", SIZE, TARGET, arguments)
