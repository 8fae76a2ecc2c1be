"""Worker processes for one plugin's rewards: started on demand, limited, killed and replaced.

A failed call becomes a verdict with a reason, such as "timeout" or "memory", and no other call fails.

Example:

    pool = WorkerPool(partial(RewardWorker, server, order), size=4)
    verdicts = await pool.call(pickled((samples, ctx)), timeout_s=30.0, calls=calls)
    pool.close()
"""

import asyncio
import json
import os
import signal
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from slime_core.aio import Slots
from slime_core.errors import PluginError
from slime_core.processes.limits import TOO_MANY_FORKS
from slime_core.processes.server import Server
from slime_core.processes.wire import LARGEST_ANSWER, pickled
from slime_core.processes.worker import REWARD_ENTRY, RewardOrder
from slime_core.sample import Json
from slime_core.score import Unscored
from slime_core.stats import CallStats

LONGEST_REASON = 60
"""Characters; a reason becomes the name of a metric."""
DRAIN_S = 0.05
"""Seconds between two reads of a worker's output: a flood of output slows the worker, not the driver."""
MOST_PROCESSES = 64
"""Processes that one worker may be at once, its descendants included."""
LONGEST_TAIL = 4_000
"""Bytes of its latest output that errors show."""
REAP_S = 5.0
START_TIMEOUT_S = 120.0
"""Seconds that importing a plugin and calling its factory may take."""


class StartError(PluginError):
    """A worker process could not build its plugin; ends the run, since another worker would fail the same way."""


class CallFailure(Exception):
    """A call without a verdict."""

    def __init__(self, reason: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(reason, detail)
        self.reason = reason if reason.isidentifier() and len(reason) <= LONGEST_REASON else "error"
        self.detail = detail
        self.retryable = retryable

    def verdict(self) -> Unscored:
        """The verdict in its place."""
        return Unscored(self.reason, self.retryable, self.detail)


class RewardWorker:
    """One process, and the end of its output."""

    def __init__(self, server: Server, order: RewardOrder) -> None:
        """Fork the process; `order` is its first call, which builds the plugin.

        Raises:
            OSError: the system has no room for another process.
        """
        self.title, self._order = f"{order.role} {order.name}", order
        self._tail, self._busy = b"", False
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self._process = server.fork(
                REWARD_ENTRY,
                title=self.title,
                output=output,
                memory_mb=order.memory_mb,
                most_processes=MOST_PROCESSES,
            )
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(output)

    @property
    def alive(self) -> bool:
        """Whether it can take a call; a closed socket shows its death before the server does."""
        process = self._process
        return process.cause is None and not process.is_over and not process.channel.is_closed

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.is_over

    async def ready(self) -> None:
        """Wait until it has built its plugin; StartError, with its output, if it could not."""
        try:
            answer = await self._exchange(pickled(self._order), START_TIMEOUT_S)
        except CallFailure as failure:
            raise StartError(f"{self.title}: its worker process did not start: {failure.detail}") from None
        if "ready" not in answer:
            raise StartError(f"{self.title}: its worker process cannot build it: {answer.get('failed')}{self._shown()}")

    async def call(self, request: bytes, timeout_s: float) -> Json:
        """One call's verdicts, as JSON.

        Raises:
            CallFailure: there are none. Unless `alive` still holds, the next call needs another worker.
        """
        answer = await self._exchange(request, timeout_s)
        if "error" not in answer:
            return answer.get("verdicts")
        reason, detail = str(answer["error"]), str(answer.get("detail"))
        if reason == "memory":
            self._process.kill("memory", detail)
        raise CallFailure(reason, detail + self._shown())

    async def _exchange(self, request: bytes, timeout_s: float) -> dict[str, Json]:
        process = self._process
        self._drain()
        self._tail, self._busy = b"", True
        self._schedule_drain()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                body = bytes(await process.call(request, LARGEST_ANSWER))
                if (answer := self._parsed(body)) is not None:
                    return answer
        except TimeoutError:
            if not limit.expired():
                raise
            process.kill("timeout", f"no answer in {timeout_s:g} s; it was killed")
        except EOFError:
            pass
        except BaseException:
            process.kill("killed", "the call was cancelled")
            raise
        finally:
            self._timer.cancel()
            self._busy = False
            failure = None if process.cause is None and not process.is_over else self._failure()
            if failure is not None:
                self.close()
        assert failure is not None, "without an answer it has ended"
        raise failure

    def _parsed(self, body: bytes) -> dict[str, Json] | None:
        with suppress(ValueError, RecursionError):
            answer = json.loads(body)
            if isinstance(answer, dict) and not self._process.channel.has_unread:
                return answer
        self._process.kill("contract", "something other than its answer was written to its socket")
        return None

    def _failure(self) -> CallFailure:
        process = self._process
        shown, code = self._shown(), process.code
        if process.cause is not None:
            reason, detail = process.cause
        elif TOO_MANY_FORKS.encode() in self._tail:
            reason, detail = "processes", "it forked without end"
        else:
            did = "it ended itself," if code is not None and code >= 0 else "it was"
            reason, detail = ("memory" if code == -signal.SIGKILL else "died"), f"{did} {process.how}"
        return CallFailure(reason, detail + shown, retryable=reason == "timeout")

    def _schedule_drain(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(DRAIN_S, self._drain_again)

    def _drain_again(self) -> None:
        self._drain()
        self._schedule_drain()

    def _drain(self) -> None:
        with suppress(OSError):
            if chunk := os.read(self._output, 1 << 16):
                self._tail = (self._tail + chunk)[-LONGEST_TAIL:]

    def _shown(self) -> str:
        self._drain()
        text = self._tail.decode(errors="replace").strip()
        return f"\nit printed:\n{text}" if text else ""

    def close(self) -> None:
        """Kill it and close its files; a call under way fails and closes the files itself."""
        self._process.kill("killed", "it was closed")
        self._process.channel.cut()  # ends a call under way
        if self._busy:
            return
        self._process.close()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def reap(self) -> None:
        """Wait until a killed process has ended."""
        if not self._process.wait(REAP_S):
            self._process.forget()


class WorkerPool:
    """At most `size` workers."""

    def __init__(self, launch: Callable[[], RewardWorker], size: int) -> None:
        """Start no process yet; `launch` starts one."""
        self._launch = launch
        self._slots = Slots(size)
        self._idle: list[RewardWorker] = []
        self._all: set[RewardWorker] = set()
        self._ever_ready = False
        self._closed = False
        weakref.finalize(self, _close_all, self._all)

    async def start(self) -> None:
        """Start one worker, so that a broken plugin is found before a sample waits for it; StartError if it is."""
        await self._slots.acquire()
        try:
            self._idle.append(await self._worker())
        finally:
            self._slots.release()

    async def call(self, request: bytes, timeout_s: float, calls: CallStats) -> Json:
        """One call on a free worker. Waiting for a worker has no limit and is not counted in `calls`.

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
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                else:
                    worker.close()
        finally:
            self._slots.release()

    async def _worker(self) -> RewardWorker:
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

    async def _new(self) -> RewardWorker:
        worker = self._launch()
        self._all.add(worker)
        try:
            await worker.ready()
        except BaseException:
            worker.close()
            raise
        self._ever_ready = True
        return worker

    def close(self) -> None:
        """Kill every worker; calls under way fail. Idempotent."""
        self._closed = True
        self._idle.clear()
        _close_all(self._all)


def _close_all(workers: set[RewardWorker]) -> None:
    while workers:
        worker = workers.pop()
        worker.close()
        worker.reap()
