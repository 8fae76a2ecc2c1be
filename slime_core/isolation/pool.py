"""WorkerPool: the worker processes of one plugin's choice: started when needed, kept, killed and replaced.

Serves one event loop after another; a call that fails takes no other call with it.
"""

import weakref
from collections.abc import Callable, Mapping
from time import perf_counter

from slime_core.isolation.failure import CallFailure, StartError
from slime_core.isolation.process import WorkerProcess
from slime_core.isolation.slots import Slots
from slime_core.sample import Json
from slime_core.stats import CallStats

START_TIMEOUT_S = 120.0
"""Seconds that importing a plugin and calling its factory may take."""


class WorkerPool:
    """At most `size` workers."""

    def __init__(self, launch: Callable[[], WorkerProcess], size: int) -> None:
        """No process is started yet; `launch` starts one."""
        self._launch = launch
        self._slots = Slots(size)
        self._idle: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()
        self._ever_ready = False
        self._closed = False
        weakref.finalize(self, _close_all, self._all)

    async def start(self) -> None:
        """Start one worker, so that what is wrong with the plugin is found before a sample waits for it.

        Raises:
            StartError: the plugin cannot be built.
        """
        await self._slots.acquire()
        try:
            self._idle.append(await self._worker())
        finally:
            self._slots.release()

    async def call(self, request: Mapping[str, Json], timeout_s: float, calls: CallStats) -> Json:
        """One call on a free worker; waits for one without a limit, and does not count that in `calls`.

        Raises:
            CallFailure: it has no verdict.
            StartError: the first worker of all could not be started.
        """
        await self._slots.acquire()
        try:
            worker = await self._worker()
            began = perf_counter()
            try:
                return await worker.call(request, timeout_s)
            finally:
                calls.seconds.append(perf_counter() - began)
                self._put_back(worker)
        finally:
            self._slots.release()

    async def _worker(self) -> WorkerProcess:
        """An idle worker that is alive, or a new one."""
        if self._closed:
            raise CallFailure("closed", "the run is over")
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.close()
        self._all -= {worker for worker in self._all if worker.gone}
        try:
            return await self._new()
        except (OSError, StartError) as error:
            if not self._ever_ready:
                raise error if isinstance(error, StartError) else StartError(str(error)) from error
            raise CallFailure("start", str(error), retryable=True) from None

    async def _new(self) -> WorkerProcess:
        worker = self._launch()
        self._all.add(worker)
        try:
            await worker.ready(START_TIMEOUT_S)
        except BaseException:
            worker.close()
            raise
        self._ever_ready = True
        return worker

    def _put_back(self, worker: WorkerProcess) -> None:
        if worker.alive and not self._closed:
            self._idle.append(worker)
        else:
            worker.close()  # it is seen to be gone when the next one is started

    def close(self) -> None:
        """Kill every worker; calls under way fail. Does nothing the second time."""
        self._closed = True
        self._idle.clear()
        _close_all(self._all)


def _close_all(workers: set[WorkerProcess]) -> None:
    while workers:
        worker = workers.pop()
        worker.close()
        worker.reap()
