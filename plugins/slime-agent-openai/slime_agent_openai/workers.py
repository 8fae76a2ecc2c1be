"""Workers: processes that run the agents of a Python function, many per process.

Each is a supervised program (`slime_core.processes.command`): it has a memory limit, and dies with the driver, together
with all processes that its agents started. An agent that ignores its cancellation makes its worker retire: the worker
takes no more tasks, and is killed when its other agents have ended. A worker that does not confirm a message within
seconds has a blocked event loop and is killed. If a process ends with several agents in it, each fails with
`AgentError.shared`; `run_alone` repeats them one by one to find the culprit.

Example:

    workers = Workers("./agents.py:solve", workers=2, agents_per_worker=64, memory_mb=4096)
    await workers.start()
    verdict = await workers.run(task, timeout_s=600.0)       # AgentError: why it failed
    await workers.close()
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slime_agent_openai.errors import AgentError, ended_reason, output_tail, timeout_message
from slime_agent_openai.task import Task, Verdict, verdict_from_json
from slime_agent_openai.worker import MAX_BYTES
from slime_core.errors import ConfigError
from slime_core.processes import CommandError, command
from slime_core.sample import Json

START_S = 300.0  # Seconds to import an agent: on a busy machine three SDKs took 43 s
GRACE_S = 2.0  # Seconds that an agent has to end after its time limit
LEAVING_S = 30.0
"""Seconds that it has if the run no longer needs it: a thread ends only when its blocking call returns."""
BLOCKED_S = 10.0  # Seconds after which a worker that does not confirm is killed
OUTPUT_S = 1.0  # Seconds to wait for the last output of a process
MAX_LIFETIME_S = 3e7  # Most seconds that a worker may live: a year
FORKS_EACH = 16  # Processes per agent; the limit applies to a worker's total

_Answer = Mapping[str, Json] | AgentError


class RunningWorker:
    """One process."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], memory_mb: int, socket: Path, *, most: int = 1
    ) -> None:
        """Starts nothing; `argv` must connect to the socket, and at most `most` agents run in it at once."""
        self.has_ended = False  # Whether its process has ended or never started
        self.is_stuck = False  # Whether one of its agents ignored its cancellation
        self._argv, self._env, self._memory_mb, self._socket, self._most = argv, env, memory_mb, socket, most
        self._answers: dict[int, asyncio.Future[_Answer]] = {}  # of running agents, cancelled or not
        self._acknowledged: dict[int, asyncio.Future[None]] = {}
        self._number, self._runs = 0, 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ready: asyncio.Future[AgentError | None] = asyncio.get_running_loop().create_future()
        self._writer: asyncio.StreamWriter | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._process: asyncio.Task[None] | None = None
        self._end = ("agent_stopped", "its worker was stopped")

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self._socket, limit=MAX_BYTES)
        if self.has_ended:
            raise AgentError(*self._end, shared=True)
        self._process = asyncio.create_task(self._run_process())
        await asyncio.wait({self._ready}, timeout=START_S)
        if not self._ready.done():
            raise AgentError("agent_start", f"its import took longer than {START_S:g} s")
        if error := self._ready.result():
            raise error

    async def run(self, task: Task, timeout_s: float) -> Verdict:
        if self.has_ended:
            raise AgentError(*self._end, shared=True)
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._runs += 1
        self._is_idle.clear()
        try:
            self._send({"number": number, "task": task.to_json()})
            await asyncio.wait({answer}, timeout=timeout_s)
            if not answer.done():
                is_blocked = await self._stop(number, answer)
                raise AgentError("agent_timeout", timeout_message(timeout_s), shared=is_blocked)
        except asyncio.CancelledError:
            self._abandon(number, answer)
            raise
        finally:
            self._runs -= 1
            if not self._runs:
                self._is_idle.set()
        return _verdict_of(answer.result())

    async def retire(self) -> None:
        try:
            await self._is_idle.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        self.has_ended = True
        try:
            await self._kill()
        finally:
            if self._server is not None:
                self._server.close()

    def _abandon(self, number: int, answer: "asyncio.Future[_Answer]") -> None:
        """Cancel an agent without waiting: it may itself wait for something that its caller is about to close."""
        self._send({"number": number})
        check = asyncio.get_running_loop().call_later(LEAVING_S, self._find_stuck, answer)
        answer.add_done_callback(lambda answer: check.cancel())

    def _find_stuck(self, answer: "asyncio.Future[_Answer]") -> None:
        self.is_stuck = self.is_stuck or not answer.done()

    async def _stop(self, number: int, answer: "asyncio.Future[_Answer]") -> bool:
        """Cancel an agent and wait for its end; returns whether another agent may have blocked it."""
        acknowledged = self._acknowledged[number] = asyncio.get_running_loop().create_future()
        self._send({"number": number})
        await asyncio.wait({answer, acknowledged}, timeout=BLOCKED_S, return_when=asyncio.FIRST_COMPLETED)
        if acknowledged.done() or answer.done():
            await asyncio.wait({answer}, timeout=GRACE_S)
            self._find_stuck(answer)
            return False
        is_shared = len(self._answers) > 1
        self._end = ("agent_blocked", f"an agent blocked the event loop of its worker for more than {BLOCKED_S:g} s")
        await self._kill()
        return is_shared

    async def _kill(self) -> None:
        if self._process is not None:
            if not self._process.cancelling():  # only once: a second cancel would interrupt the first
                self._process.cancel()
            await asyncio.wait({self._process})

    def _send(self, message: Mapping[str, Json]) -> None:
        if self._writer is not None and not self.has_ended:
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.has_ended:
            writer.close()
            return
        self._writer, self._serving = writer, asyncio.create_task(self._serve(reader))
        self._serving.add_done_callback(lambda _: writer.close())  # also if the task is cancelled before it begins

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                self._receive(json.loads(line))

    def _receive(self, message: Mapping[str, Json]) -> None:
        number = message.get("number")
        if "ready" in message or "broken" in message:
            if not self._ready.done():
                reason = message.get("broken")
                self._ready.set_result(None if reason is None else AgentError("agent_import", str(reason)))
        elif isinstance(number, int) and "acknowledged" in message:
            if (acknowledged := self._acknowledged.pop(number, None)) is not None and not acknowledged.done():
                acknowledged.set_result(None)
        elif isinstance(number, int) and (answer := self._answers.pop(number, None)) is not None:
            answer.set_result(message)

    async def _run_process(self) -> None:
        most = max(256, FORKS_EACH * self._most)
        program = command(
            self._argv, env=self._env, memory_mb=self._memory_mb, timeout_s=MAX_LIFETIME_S, most_processes=most
        )
        try:
            result = await program
            self._end = (ended_reason(result.code), output_tail(result.stdout + result.stderr))
        except CommandError as error:
            self._end = (f"agent_{error.reason}", str(error))
        except OSError as error:
            self._end = ("agent_start", str(error))
        finally:
            self.has_ended = True
            try:
                if self._serving is not None:  # verdicts sent before its end still count
                    await asyncio.wait({self._serving}, timeout=OUTPUT_S)
                    self._serving.cancel()
                    await asyncio.wait({self._serving})
            finally:
                self._fail_all()

    def _fail_all(self) -> None:
        """Fail all its agents; the fault is shared if there are several, or if earlier ones may have used memory."""
        reason, detail = self._end
        others = len(self._answers) > 1 or (reason == "agent_memory" and self._number > 1)
        shared = others or reason == "agent_stopped"
        for answer in self._answers.values():
            answer.set_result(AgentError(reason, detail, shared=shared))
        self._answers.clear()
        if not self._ready.done():
            self._ready.set_result(AgentError(reason, detail, shared=shared))


def _verdict_of(answer: _Answer) -> Verdict:
    if isinstance(answer, AgentError):
        raise answer
    if "failed" in answer:
        raise AgentError(f"agent_{answer['failed']}", str(answer.get("detail", "")))
    return verdict_from_json(answer)


MAX_FOLDER = 60  # Longest folder, in characters, for a socket, whose path may have about 100
MAIN = (
    "import asyncio, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slime_agent_openai.worker import main; asyncio.run(main(*sys.argv[2:]))"
)


class Workers:
    """Implements `slime_agent_openai.generator.Agents`."""

    def __init__(
        self,
        agent: str,
        *,
        workers: int,
        agents_per_worker: int,
        memory_mb: int,
        arguments: Mapping[str, Json] | None = None,
    ) -> None:
        """`memory_mb` limits each process with all its children; with `arguments`, the function makes the agent."""
        self._arguments = json.dumps(arguments)
        self._agent, self._memory_mb, self._most = agent, memory_mb, agents_per_worker
        self._slots = asyncio.Semaphore(workers * agents_per_worker)
        self._alone = asyncio.Semaphore(workers)
        self._places: list[RunningWorker | None] = [None] * workers
        self._loads = [0] * workers
        self._locks = [asyncio.Lock() for _ in range(workers)]
        self._running: set[RunningWorker] = set()  # workers in their places, retiring ones, and single-agent ones
        self._retiring: set[asyncio.Task[None]] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        short = None if len(tempfile.gettempdir()) < MAX_FOLDER else "/tmp"
        self._folder = tempfile.TemporaryDirectory(prefix="slime-agents-", dir=short)
        places = range(len(self._places))
        for worker in await asyncio.gather(*map(self._worker_at, places), return_exceptions=True):
            if isinstance(worker, BaseException):
                await self.close()
                if isinstance(worker, AgentError):
                    raise ConfigError(f"cannot start agent {self._agent!r}: {worker.detail}") from None
                raise worker

    async def close(self) -> None:
        """End all workers with their agents' processes; callers that still wait get an AgentError."""
        folder, self._folder = self._folder, None
        await asyncio.gather(*(each.close() for each in list(self._running)), return_exceptions=True)
        await asyncio.gather(*self._retiring, return_exceptions=True)
        self._running.clear()
        if folder is not None:
            folder.cleanup()

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one agent. Its time limit does not include the wait for a free place."""
        async with self._slots:
            place = self._loads.index(min(self._loads))
            self._loads[place] += 1
            try:
                worker = await self._worker_at(place)
                return await worker.run(task, timeout_s)
            finally:
                self._loads[place] -= 1

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one agent in its own process: if that ends, the agent is at fault."""
        async with self._alone:
            worker = await self._start_worker()
            try:
                return await worker.run(task, timeout_s)
            finally:
                await self._end(worker)

    async def _worker_at(self, place: int) -> RunningWorker:
        """The worker of a place; a new one if the last has ended or takes no more tasks."""
        async with self._locks[place]:
            worker = self._places[place]
            if worker is not None and not worker.has_ended and not worker.is_stuck:
                return worker
            self._places[place] = None
            if worker is not None:
                self._retire(worker)
            worker = self._places[place] = await self._start_worker()
            return worker

    def _retire(self, worker: RunningWorker) -> None:
        retiring = asyncio.create_task(self._retire_worker(worker))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _retire_worker(self, worker: RunningWorker) -> None:
        await worker.retire()
        self._running.discard(worker)

    async def _start_worker(self) -> RunningWorker:
        if self._folder is None:
            raise AgentError("agent_stopped", "the workers were stopped", shared=True)
        socket = Path(tempfile.mkdtemp(dir=self._folder.name)) / "socket"
        paths = json.dumps([*sys.path, str(Path.cwd())])  # workers can import the same modules as the driver
        command = [sys.executable, "-c", MAIN, paths, self._agent, str(socket), self._arguments]
        worker = RunningWorker(command, environment(), self._memory_mb, socket, most=self._most)
        self._running.add(worker)
        try:
            await worker.start()
        except BaseException:
            await self._end(worker)
            raise
        return worker

    async def _end(self, worker: RunningWorker) -> None:
        await worker.close()
        self._running.discard(worker)


def environment() -> dict[str, str]:
    """The driver's environment, with a direct route to the gateway, unbuffered output and crash traces."""
    env = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **os.environ}
    direct = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if direct != "*":
        direct = ",".join(filter(None, (direct, "127.0.0.1", "localhost", "::1")))
    return env | {"no_proxy": direct, "NO_PROXY": direct}
