"""The local launcher: worker groups as processes of this machine, one thread each.

Workers are forked from one preloaded server process, so that torch is imported once for all of them; processes of one
thread beat one process of many at these sizes (OpenMP's barriers spin, and cost 10x under any other load).
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Coroutine, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TypeVar

from slime_core.errors import WorkerError
from slime_core.local._serve import DRIVER_SIGNALS, Reply, serve
from slime_core.roles import LauncherSetup, WorkerGroupSpec

CLOSE_GRACE_S = 2.0
SAFE_PATH = "slime"
"""Value of PYTHONSAFEPATH where it is ours: the server of workers looks for what it imports where the driver does, and
not first in the working directory, where a `random.py` of the user's may lie. The workers themselves do not have it."""
LOG_TAIL_LINES = 15
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}

ResultT = TypeVar("ResultT")


class LocalWorker:
    """One process and the driver's end of its pipe."""

    def __init__(self, spec: WorkerGroupSpec, rank: int, log: Path) -> None:
        """Describe the process; `launch` starts it."""
        self.title = f"{spec.name} {rank}"
        self.log = log
        context = multiprocessing.get_context("forkserver")
        self._pipe, self._theirs = context.Pipe()
        arguments = (self._theirs, log, spec.target, rank, spec.size, dict(spec.arguments))
        self._process: ForkServerProcess = context.Process(target=serve, args=arguments, name=self.title, daemon=True)
        self._turn = asyncio.Lock()
        self._calls = 0
        self._ending = False

    def launch(self) -> None:
        """Start the process; blocks while the server process imports torch."""
        # The server process inherits what this thread blocks: a Ctrl-C while it imports must not end it. Starting the
        # resource tracker unblocks the same signals, so it goes first.
        resource_tracker.ensure_running()
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, DRIVER_SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        self._theirs.close()

    async def call(self, method: str, given: Sequence[object], timeout_s: float | None) -> object:
        """Call `worker.method(*given)`; calls queue up.

        Raises:
            WorkerError: the worker raised, died or did not answer in time.
        """
        async with self._turn:
            self._calls += 1
            try:
                self._pipe.send((self._calls, method, tuple(given)))
            except OSError:
                raise self._death() from None
            return await self._answer(f"{method}()", timeout_s)

    async def built(self) -> None:
        """Wait for the worker's object; errors as in `call`."""
        await self._answer("its construction", None)

    async def _answer(self, what: str, timeout_s: float | None) -> object:
        """Wait for the reply to the newest call; late ones, to calls that were cancelled, are passed over."""
        try:
            async with asyncio.timeout(timeout_s):
                while (reply := await self._receive()).number != self._calls:
                    pass
        except TimeoutError:
            raise WorkerError(
                f"{self.title} did not answer {what} within {timeout_s:g} s; its log is {self.log}"
            ) from None
        except (EOFError, OSError):
            raise self._death() from None
        if reply.error is not None:
            raise reply.error
        if reply.traceback:
            raise WorkerError(f"{self.title} raised in {what}; its log is {self.log}\n{reply.traceback}")
        return reply.value

    async def _receive(self) -> Reply:
        await _readable(self._pipe)
        reply: Reply = self._pipe.recv()
        return reply

    def _death(self) -> WorkerError:
        if self._ending:
            return WorkerError(f"{self.title} was stopped with its group; its log is {self.log}")
        self._process.join(CLOSE_GRACE_S)
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(lines[-LOG_TAIL_LINES:])
        how = _how_it_ended(self._process.exitcode)
        return WorkerError(f"{self.title} died ({how}); the end of its log, {self.log}:\n{tail}")

    def ask_to_end(self) -> None:
        """Tell an idle worker to end; a busy one is killed by `reap`."""
        self._ending = True
        with contextlib.suppress(OSError):
            self._pipe.send(None)

    def reap(self) -> None:
        """See the process gone, by force if need be."""
        if self._process.pid is None:
            return
        self._process.join(CLOSE_GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def close(self) -> None:
        """Close all files, after the process is gone: whoever still waited for an answer has seen its end."""
        self._pipe.close()
        self._theirs.close()
        if self._process.pid is not None:
            self._process.close()


class LocalWorkerGroup:
    """Running workers of one group."""

    def __init__(self, workers: Sequence[LocalWorker]) -> None:
        """Take over started workers."""
        self._workers = list(workers)
        self._closed = False

    @property
    def size(self) -> int:
        """Processes."""
        return len(self._workers)

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call `method` on every worker at once; see `WorkerGroup.call`."""
        given = [()] * self.size if arguments is None else [(argument,) for argument in arguments]
        calls = [worker.call(method, each, timeout_s) for worker, each in zip(self._workers, given, strict=True)]
        return await self._all(calls)

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call `method` on one worker."""
        return (await self._all([self._workers[rank].call(method, (argument,), timeout_s)]))[0]

    async def built(self) -> None:
        """Wait until every worker has built its object."""
        await self._all([worker.built() for worker in self._workers])

    async def _all(self, calls: Sequence[Coroutine[None, None, ResultT]]) -> list[ResultT]:
        tasks = [asyncio.create_task(call) for call in calls]
        try:
            return list(await asyncio.gather(*tasks))
        except WorkerError:
            # One rank's failure leaves the others waiting for it: none of them can be used again.
            await self.close()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop all workers; calls under way fail."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.ask_to_end()
        await asyncio.gather(*(asyncio.to_thread(worker.reap) for worker in self._workers))
        for worker in self._workers:
            worker.close()


class LocalLauncher:
    """Starts worker groups on this machine."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Remember where logs go."""
        self._logs = setup.scratch
        self._groups: list[LocalWorkerGroup] = []
        self._launching = asyncio.Lock()

    async def start(self, spec: WorkerGroupSpec) -> LocalWorkerGroup:
        """Start a group and wait until its workers are built."""
        workers = [LocalWorker(spec, rank, self._logs / f"{spec.name}-{rank}.log") for rank in range(spec.size)]
        multiprocessing.get_context("forkserver").set_forkserver_preload(["slime_core.local._preload"])
        group = LocalWorkerGroup(workers)
        self._groups.append(group)
        async with self._launching:  # or the environment of one group would be restored to that of another
            safe = {} if "PYTHONSAFEPATH" in os.environ else {"PYTHONSAFEPATH": SAFE_PATH}
            with _environment(ONE_THREAD | safe):
                for worker in workers:
                    await asyncio.to_thread(worker.launch)
        await group.built()
        return group

    async def close(self) -> None:
        """Stop every group."""
        await asyncio.gather(*(group.close() for group in self._groups))


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables while the server process starts: OpenMP reads them when torch is imported."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    hint = ", perhaps for want of memory" if exit_code == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-exit_code).name}{hint}"


async def _readable(pipe: Connection) -> None:
    """Wait until a pipe has something to read, or is closed at the other end."""
    if pipe.poll():
        return
    loop, descriptor = asyncio.get_running_loop(), pipe.fileno()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        loop.remove_reader(descriptor)
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        if not pipe.closed:
            loop.remove_reader(descriptor)
