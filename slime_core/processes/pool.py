"""The pool of worker processes that run one plugin's calls, and what happens when a call fails.

Each process runs one call at a time and can be killed at any moment. The pool starts workers on demand and replaces
dead ones. A failed call becomes a verdict with a reason, such as "timeout" or "memory", and no other call fails.

Example:

    worker = WorkerProcess(server, start, title="reward math", memory_mb=1024)
    await worker.ready(60.0)
    answer = await worker.call({"samples": [...], "ctx": {...}}, timeout_s=30.0)
    worker.kill("no longer needed")
"""

import asyncio
import json
import os
import signal
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter

from slime_core.aio import Slots
from slime_core.errors import PluginError
from slime_core.processes.channel import LARGEST_ANSWER, TooLong, packed
from slime_core.processes.limits import TOO_MANY_FORKS, descendants, resident_mb, shared_mb
from slime_core.processes.server import Server
from slime_core.sample import Json
from slime_core.score import Unscored
from slime_core.stats import CallStats

# Failure: why an isolated call has no verdict, and the verdict that says so.

LONGEST_REASON = 60
"""Characters; a reason becomes the name of a metric."""


class StartError(PluginError):
    """A worker process could not build its plugin; ends the run, for no other worker will do better."""


class CallFailure(Exception):
    """A call that has no verdict."""

    def __init__(self, reason: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(reason, detail)
        self.reason = reason if reason.isidentifier() and len(reason) <= LONGEST_REASON else "error"
        self.detail = detail
        self.retryable = retryable

    def verdict(self) -> Unscored:
        """What the run is told."""
        return Unscored(self.reason, self.retryable, self.detail)


# WorkerProcess: one process that runs one plugin's calls, one after another, and can be killed at any moment.

WORKER = "slime_core.processes.worker"
"""Module that every worker begins with: what a server of workers imports before it forks."""
TICK_S = 0.05
"""Seconds between two looks at a worker that has not answered yet."""
TICKS_PER_WEIGHING = 10
"""Looks between two additions of what its processes use."""
MOST_PROCESSES = 64
"""Processes that a call may have at once."""
LONGEST_TAIL = 4_000
"""Bytes of its latest output that errors show."""
REAP_S = 5.0


class WorkerProcess:
    """One process, and the end of what it printed."""

    def __init__(self, server: Server, start: Mapping[str, Json], *, title: str, memory_mb: int) -> None:
        """Start the process; what `start` asks it to build is built meanwhile.

        Raises:
            OSError: the system has no room for another process.
        """
        self.title = title
        self._memory_mb = memory_mb
        self._killed: CallFailure | None = None
        self._tail = b""
        self._busy = False
        self._start = dict(start)
        self._calls = 0
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self._process = server.fork(f"{WORKER}:main", title=title, output=output)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(output)

    @property
    def alive(self) -> bool:
        """Whether it can take a call; a closed socket tells of its death before the server does."""
        return self._killed is None and not self._process.is_over and not self._process.channel.is_closed

    async def ready(self, timeout_s: float) -> None:
        """Wait until it has built its plugin.

        Raises:
            StartError: it could not; shows what it printed.
        """
        try:
            answer = await self._exchange(self._start, timeout_s)
        except CallFailure as failure:
            raise StartError(f"{self.title}: its worker process did not start: {failure.detail}") from None
        if "ready" not in answer:
            self.kill("it did not start")
            raise StartError(f"{self.title}: its worker process cannot build it: {answer.get('failed')}{self._shown()}")

    async def call(self, request: Mapping[str, Json], timeout_s: float) -> Json:
        """One call's verdicts, as JSON.

        Raises:
            CallFailure: there are none. Unless `alive` still holds, another worker must take the next call.
        """
        answer = await self._exchange(request, timeout_s)
        if "error" not in answer:
            return answer.get("verdicts")
        reason, detail = str(answer["error"]), str(answer.get("detail"))
        if reason == "memory":
            self.kill("its memory is used up")
        raise CallFailure(reason, detail + self._shown())

    def kill(self, why: str) -> None:
        """End it and all that it started, at once; a call under way fails."""
        self._kill(CallFailure("killed", why))

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.is_over

    def reap(self) -> None:
        """Wait for a killed process to be gone."""
        if not self._process.wait(REAP_S):
            self._process.forget()

    async def _exchange(self, request: Mapping[str, Json], timeout_s: float) -> dict[str, Json]:
        """Send one frame and receive one, while time, memory and processes are watched."""
        loop = asyncio.get_running_loop()
        self._drain()
        self._tail = b""
        patrol = _Patrol(self, loop, timeout_s)
        self._busy = True
        self._calls += 1
        try:
            await self._process.channel.send(packed({**request, "call": self._calls}))
            return self._parse(await self._process.channel.receive(LARGEST_ANSWER))
        except TooLong as error:
            detail = f"it answered with {error.args[0]} bytes; {LARGEST_ANSWER} are taken"
            self._kill(CallFailure("output", detail))
            raise self._death() from None
        except (EOFError, OSError):  # it ended, or was killed by the patrol
            if self._killed is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(REAP_S):
                        await self._process.ended()
            raise self._death() from None
        except CallFailure:
            raise
        except BaseException:
            self.kill("the call was cancelled")
            raise
        finally:
            self._busy = False
            patrol.stop()
            if self._killed is not None:
                self._close()

    def _parse(self, body: bytes) -> dict[str, Json]:
        try:
            answer: Json = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if self._process.channel.has_unread or not isinstance(answer, dict) or answer.get("call") != self._calls:
            self._kill(CallFailure("contract", "something other than its answer was written to its socket"))
            raise self._death()
        return answer

    def _death(self) -> CallFailure:
        """Why it is gone; it is killed if only its socket is."""
        if self._killed is None:
            over, code = self._process.is_over, self._process.code
            did = "it ended itself," if code is not None and code >= 0 else "it was"
            how = f"{did} {self._process.how}" if over else "it closed its connection"
            self._drain()
            if TOO_MANY_FORKS.encode() in self._tail:
                self._kill(CallFailure("processes", "it forked without end"))
            else:
                self._kill(CallFailure("memory" if code == -signal.SIGKILL else "died", how))
        assert self._killed is not None, "killed just now"
        failure = self._killed
        return CallFailure(failure.reason, failure.detail + self._shown(), retryable=failure.retryable)

    def _kill(self, failure: CallFailure) -> None:
        if self._killed is not None:
            return
        self._killed = failure
        self._process.kill()
        self._process.channel.cut()  # wakes the call that waits for an answer

    def patrol(self, late: str | None, weigh: bool) -> None:
        """Look after a call that has not answered yet; kill it if it is `late` or uses too much."""
        self._drain()
        if late is not None:
            self._kill(CallFailure("timeout", late, retryable=True))
        elif self._process.is_over:
            self._death()
        elif weigh and (pid := self._process.pid):
            started = descendants(pid)
            # Its own memory is limited by the system, but for what is shared.
            used = sum(map(resident_mb, (pid, *started))) if started else shared_mb(pid)
            if len(started) > MOST_PROCESSES:
                self._kill(CallFailure("processes", f"it has started more than {MOST_PROCESSES} processes"))
            elif used > self._memory_mb:
                who = "it and its processes use" if started else "it shares"
                self._kill(CallFailure("memory", f"{who} {used:.0f} MiB of {self._memory_mb}"))

    def _drain(self) -> None:
        """Take what it printed; no more at a time than the pipe holds, so that a flood costs the flooder."""
        with suppress(OSError):
            if chunk := os.read(self._output, 1 << 16):
                self._tail = (self._tail + chunk)[-LONGEST_TAIL:]

    def _shown(self) -> str:
        self._drain()
        text = self._tail.decode(errors="replace").strip()
        return f"\nit printed:\n{text}" if text else ""

    def close(self) -> None:
        """Kill it and let go of its files; a call under way fails, and does the latter itself."""
        self.kill("it was closed")
        if not self._busy:
            self._close()

    def _close(self) -> None:
        self._process.close()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


class _Patrol:
    """Looks after a worker at a call, every `TICK_S`, until it is stopped."""

    def __init__(self, worker: WorkerProcess, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._worker, self._loop, self._timeout_s = worker, loop, timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._rounds = 0
        self._timer = self._next()

    def _next(self) -> asyncio.TimerHandle:
        left = self._deadline - time.monotonic()
        return self._loop.call_later(min(TICK_S, max(0.0, left)), self._come)

    def _come(self) -> None:
        self._rounds += 1
        late = time.monotonic() >= self._deadline
        text = f"no answer in {self._timeout_s:g} s; it was killed" if late else None
        self._worker.patrol(text, weigh=self._rounds % TICKS_PER_WEIGHING == 0)
        if not late:
            self._timer = self._next()

    def stop(self) -> None:
        """Look after the call no longer."""
        self._timer.cancel()


# WorkerPool: the worker processes of one plugin's choice: started when needed, kept, killed and replaced.

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
