"""Drivers of launchers, for the checks of what becomes of their workers: one that lives, one that is killed."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TypeVar, cast

from slime_core.catalog import Catalog, PluginWarning
from slime_core.roles import Launcher, LauncherSetup, LauncherSpec, PluginSet, Setup, WorkerGroupSpec
from slime_testing.protected import SEED

ResultT = TypeVar("ResultT")
GONE_S = 10.0
"""How long processes may take to be gone."""
_DRIVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_testing._drivers import drive; drive(int(sys.argv[2]))"
)


class Live:
    """A launcher that several checks use, with its event loop and its folder."""

    def __init__(self, build: Callable[[Path], Launcher], limit_s: float) -> None:
        """Build the launcher, its loop and its folder."""
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
            with contextlib.suppress(TimeoutError):  # LCH-008 tells of it
                async with asyncio.timeout(self._limit_s):
                    await self.launcher.close()

        with self._folder, self._loop:
            self._loop.run(close())


@dataclass(frozen=True, slots=True)
class Named:
    """A launcher that the catalog knows: all that a process of its own needs to build it."""

    choice: str
    """Its name."""
    settings: Mapping[str, object]
    """Its settings."""
    plugins: PluginSet
    """What the catalog is made of."""
    scratch: Path
    """Where it may write."""

    def __call__(self) -> Launcher:
        """Build it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)
            catalog = Catalog.discover(self.plugins, strict=False)

        def make(role: str, name: str, **settings: object) -> object:
            spec = catalog.find(role, name).spec
            return spec.factory(spec.model.model_validate(settings), Setup(make, SEED))

        spec = catalog.find(LauncherSpec.role, self.choice).spec
        setup = LauncherSetup(make, SEED, scratch=self.scratch)
        return cast(Launcher, spec.factory(spec.model.model_validate(dict(self.settings)), setup))


def killed_while_it_drives(build: Callable[[], Launcher], spec: WorkerGroupSpec, limit_s: float) -> list[int]:
    """Processes that a driver had started, with its workers and theirs, when it was killed by SIGKILL.

    The driver of a `Named` launcher is a new process: a fork has the connections of this one, and none of the threads
    that serve them, so that a launcher of a cluster hangs in it. One without a name can only be driven by a fork.

    Raises:
        AssertionError: the driver did not get as far as starting them.
    """
    told, tell = os.pipe()
    begun = _begun(build, spec, tell) if isinstance(build, Named) else None
    driver = begun.pid if begun is not None else _forked(build, spec, tell)
    os.close(tell)
    try:
        if not select.select([told], [], [], limit_s)[0] or not (text := os.read(told, 1 << 16)):
            raise AssertionError("in a process of its own the launcher could not start a group, or not in time")
        return cast(list[int], json.loads(text))
    finally:
        os.close(told)
        os.kill(driver, signal.SIGKILL)
        if begun is not None:
            begun.wait()
        else:
            os.waitpid(driver, 0)


def _begun(build: Named, spec: WorkerGroupSpec, tell: int) -> "subprocess.Popen[bytes]":
    """A new process that drives."""
    arguments = [sys.executable, "-P", "-c", _DRIVER, json.dumps(sys.path), str(tell)]
    with tempfile.TemporaryFile() as asked:
        asked.write(ForkingPickler.dumps((build, spec)))
        asked.seek(0)
        return subprocess.Popen(arguments, stdin=asked, pass_fds=(tell,))


def _forked(build: Callable[[], Launcher], spec: WorkerGroupSpec, tell: int) -> int:
    """A fork of this process that drives; its id."""
    with warnings.catch_warnings():  # of threads, which a fork does not have: none of them is needed
        warnings.simplefilter("ignore", DeprecationWarning)
        driver = os.fork()
    if driver == 0:
        try:
            asyncio.run(_drive(build, spec, tell))
        finally:
            os._exit(1)
    return driver


def drive(tell: int) -> None:
    """What a new process does: it reads whom to build and what to start."""
    build, spec = ForkingPickler.loads(sys.stdin.buffer.read())
    asyncio.run(_drive(build, spec, tell))


async def _drive(build: Callable[[], Launcher], spec: WorkerGroupSpec, tell: int) -> None:
    group = await build().start(spec)
    spawned = await group.call("spawn")
    os.write(tell, json.dumps([pid for each in spawned for pid in cast(list[int], each)]).encode())
    await asyncio.Event().wait()


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """What comes to this process's own output and error, whoever writes there; to be read afterwards."""
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
    """Which processes still run, after a while."""
    end = time.monotonic() + GONE_S
    while left := [pid for pid in pids if runs(pid)]:
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.05)
    return left


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
