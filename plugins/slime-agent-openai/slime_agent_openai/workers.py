"""Workers: processes that run the agents of a Python function, many at once in each.

Each is a supervised program (`slime_core.processes.program.command`): it has a limit of memory, dies with the driver,
and takes with it whatever its agents started. An agent that does not end when it is told to makes its worker retire:
it takes no more, and is killed when the others in it have ended. Where a process ends with several agents in it, each
of them fails with `AgentError.shared`: nobody knows who it was until `run_alone` has run them again.

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
from collections.abc import Mapping
from pathlib import Path

from slime_agent_openai.failure import AgentError
from slime_agent_openai.running import RunningWorker
from slime_agent_openai.task import Task, Verdict
from slime_core.errors import ConfigError
from slime_core.sample import Json

__all__ = ["Workers"]

LONGEST_FOLDER = 60
"""Characters of a folder of temporary files in which a socket fits: the path of one has about 100."""
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
        """Nothing runs.

        Args:
            agent: file or module and function.
            workers: processes.
            agents_per_worker: agents in each of them at once.
            memory_mb: resident mebibytes of each, with all that it starts.
            arguments: keyword arguments with which the function makes the agent, where it is not the agent itself.
        """
        self._arguments = json.dumps(arguments)
        self._agent, self._memory_mb, self._most = agent, memory_mb, agents_per_worker
        self._slots = asyncio.Semaphore(workers * agents_per_worker)
        self._alone = asyncio.Semaphore(workers)
        self._places: list[RunningWorker | None] = [None] * workers
        self._loads = [0] * workers
        self._locks = [asyncio.Lock() for _ in range(workers)]
        self._running: set[RunningWorker] = set()  # those of places, those that retire, those for one agent alone
        self._retiring: set[asyncio.Task[None]] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """Start all workers, and import the agent in each.

        Raises:
            ConfigError: it cannot be imported.
        """
        short = None if len(tempfile.gettempdir()) < LONGEST_FOLDER else "/tmp"
        self._folder = tempfile.TemporaryDirectory(prefix="slime-agents-", dir=short)
        places = range(len(self._places))
        for made in await asyncio.gather(*map(self._at, places), return_exceptions=True):
            if isinstance(made, BaseException):
                await self.close()
                if isinstance(made, AgentError):
                    raise ConfigError(f"agent {self._agent!r} cannot be run: {made.detail}") from None
                raise made

    async def close(self) -> None:
        """End all of them, and whatever their agents started; who still waits for an agent meets an AgentError."""
        folder, self._folder = self._folder, None
        await asyncio.gather(*(each.close() for each in list(self._running)), return_exceptions=True)
        await asyncio.gather(*self._retiring, return_exceptions=True)
        self._running.clear()
        if folder is not None:
            folder.cleanup()

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one agent. What it waits for a free place does not count against its time.

        Raises:
            AgentError: it failed, or took too long.
        """
        async with self._slots:
            place = self._loads.index(min(self._loads))
            self._loads[place] += 1
            try:
                worker = await self._at(place)
                return await worker.run(task, timeout_s)
            finally:
                self._loads[place] -= 1

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one in a process of its own: what ends that is its own doing.

        Raises:
            AgentError: it failed, or took too long.
        """
        async with self._alone:
            worker = await self._started()
            try:
                return await worker.run(task, timeout_s)
            finally:
                await self._end(worker)

    async def _at(self, place: int) -> RunningWorker:
        """The worker of a place, a new one where the last has ended or takes no more."""
        async with self._locks[place]:
            worker = self._places[place]
            if worker is not None and not worker.has_ended and not worker.is_stuck:
                return worker
            self._places[place] = None
            if worker is not None:
                self._retire(worker)
            worker = self._places[place] = await self._started()
            return worker

    def _retire(self, worker: RunningWorker) -> None:
        """Let the others in it end, and then it."""
        retiring = asyncio.create_task(self._retired(worker))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _retired(self, worker: RunningWorker) -> None:
        await worker.retire()
        self._running.discard(worker)

    async def _started(self) -> RunningWorker:
        """A new one.

        Raises:
            AgentError: it did not start, or all are being ended.
        """
        if self._folder is None:
            raise AgentError("agent_stopped", "the workers were ended", shared=True)
        socket = Path(tempfile.mkdtemp(dir=self._folder.name)) / "socket"
        paths = json.dumps([*sys.path, str(Path.cwd())])  # what the driver finds, they find, too
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
    """The driver's, in which no proxy stands between an agent and the gateway, and the last words are not lost."""
    env = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **os.environ}
    direct = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if direct != "*":
        direct = ",".join(filter(None, (direct, "127.0.0.1", "localhost", "::1")))
    return env | {"no_proxy": direct, "NO_PROXY": direct}
