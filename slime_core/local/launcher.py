"""The local launcher: worker groups as processes of this machine, one thread each.

Workers are forked from one preloaded server process, so that torch is imported once for all of them; processes of one
thread beat one process of many at these sizes (OpenMP's barriers spin, and cost 10x under any other load).
"""

import asyncio
import contextlib
import multiprocessing
import os
from collections.abc import Coroutine, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from slime_core.errors import WorkerError
from slime_core.local._serve import Reply, serve
from slime_core.roles import LauncherSetup, WorkerGroupSpec

CLOSE_GRACE_S = 2.0
LOG_TAIL_LINES = 15
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


class LocalWorker:
    """One process and the driver's end of its pipe."""

    def __init__(self, spec: WorkerGroupSpec, rank: int, log: Path) -> None:
        """Describe the process; `launch` starts it."""
        self.title = f"{spec.name} {rank}"
        self.log = log
        context = multiprocessing.get_context("forkserver")
        self._pipe, self._theirs = context.Pipe()
        arguments = (self._theirs, os.getpid(), log, spec.target, rank, spec.size, dict(spec.arguments))
        self._process: ForkServerProcess = context.Process(target=serve, args=arguments, name=self.title, daemon=True)
        self._turn = asyncio.Lock()

    def launch(self) -> None:
        """Start the process; blocks while the server process imports torch."""
        self._process.start()
        self._theirs.close()

    async def call(self, method: str, given: Sequence[object], timeout_s: float | None) -> object:
        """Call `worker.method(*given)`; calls queue up.

        Raises:
            WorkerError: the worker raised, died or did not answer in time.
        """
        async with self._turn:
            try:
                self._pipe.send((method, tuple(given)))
            except OSError:
                raise self._death() from None
            return await self.answer(f"{method}()", timeout_s)

    async def answer(self, what: str, timeout_s: float | None = None) -> object:
        """Wait for the reply to `what`; errors as in `call`."""
        try:
            async with asyncio.timeout(timeout_s):
                await _readable(self._pipe)
            reply: Reply = self._pipe.recv()
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

    def _death(self) -> WorkerError:
        self._process.join(CLOSE_GRACE_S)
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(lines[-LOG_TAIL_LINES:])
        code = self._process.exitcode
        return WorkerError(f"{self.title} died (exit code {code}); the end of its log, {self.log}:\n{tail}")

    def end(self) -> None:
        """Close the pipe, which ends an idle worker."""
        self._pipe.close()

    def reap(self) -> None:
        """See the process gone, by force if need be."""
        self._process.join(CLOSE_GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


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
        await self._all([worker.answer("its construction") for worker in self._workers])

    async def _all(self, calls: Sequence[Coroutine[None, None, object]]) -> list[object]:
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
        """Stop all workers."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.end()
        await asyncio.gather(*(asyncio.to_thread(worker.reap) for worker in self._workers))


class LocalLauncher:
    """Starts worker groups on this machine."""

    def __init__(self, setup: LauncherSetup) -> None:
        """Remember where logs go."""
        self._logs = setup.scratch
        self._groups: list[LocalWorkerGroup] = []

    async def start(self, spec: WorkerGroupSpec) -> LocalWorkerGroup:
        """Start a group and wait until its workers are built."""
        workers = [LocalWorker(spec, rank, self._logs / f"{spec.name}-{rank}.log") for rank in range(spec.size)]
        multiprocessing.get_context("forkserver").set_forkserver_preload(["slime_core.local._preload"])
        group = LocalWorkerGroup(workers)
        self._groups.append(group)
        with _environment(ONE_THREAD):
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


async def _readable(pipe: Connection) -> None:
    """Wait until a pipe has something to read, or is closed at the other end."""
    if pipe.poll():
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(pipe.fileno(), wake)
    try:
        await ready
    finally:
        loop.remove_reader(pipe.fileno())
