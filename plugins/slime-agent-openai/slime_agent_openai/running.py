"""RunningWorker: one worker process, the agents that run in it, and the socket between it and the driver.

An agent is told to end by its number. The worker says at once that it heard, and once more when the agent has ended.
One that has not heard for some seconds has an agent in it that keeps its loop: nobody in it gets on, so it is killed.

Example:

    worker = RunningWorker(argv, dict(os.environ), 4096, folder / "socket")
    await worker.start()
    verdict = await worker.run(task, timeout_s=600.0)
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slime_agent_openai.failure import AgentError, ended_reason, last_words, late
from slime_agent_openai.task import Task, Verdict
from slime_agent_openai.verdict import verdict_of
from slime_agent_openai.worker import LONGEST
from slime_core.processes import CommandError, command
from slime_core.sample import Json

START_S = 300.0
"""Seconds to import an agent: on a busy machine three SDKs took 43 s."""
GRACE_S = 2.0
"""Seconds that an agent has to end once its time is over."""
LEAVING_S = 30.0
"""Seconds that it has where it is the run that needs it no more: a thread ends when what it waits for has."""
BLOCKED_S = 10.0
"""Seconds after which a worker that does not hear is killed."""
LAST_WORDS_S = 1.0
"""Seconds for what a process said before it ended to arrive."""
FOR_EVER_S = 3e7
"""Seconds that a worker may live: a year."""
FORKS_EACH = 16
"""Processes that one agent may have at once, taken over all of a worker."""

_Answer = Mapping[str, Json] | AgentError


class RunningWorker:
    """One process."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], memory_mb: int, socket: Path, *, most: int = 1
    ) -> None:
        """Nothing runs; `argv` connects to the socket, and `most` agents are in it at once."""
        self.has_ended = False
        """Whether its process is gone, or was never there."""
        self.is_stuck = False
        """Whether an agent in it did not end when it was told to."""
        self._argv, self._env, self._memory_mb, self._socket, self._most = argv, env, memory_mb, socket, most
        self._answers: dict[int, asyncio.Future[_Answer]] = {}  # of agents that are at work, told to end or not
        self._heard: dict[int, asyncio.Future[None]] = {}
        self._number, self._runs = 0, 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ready: asyncio.Future[AgentError | None] = asyncio.get_running_loop().create_future()
        self._writer: asyncio.StreamWriter | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._life: asyncio.Task[None] | None = None
        self._end = ("agent_stopped", "its worker was ended")

    async def start(self) -> None:
        """Start it, and wait until it has imported the agent.

        Raises:
            AgentError: it did not; says why.
        """
        self._server = await asyncio.start_unix_server(self._connected, self._socket, limit=LONGEST)
        if self.has_ended:
            raise AgentError(*self._end, shared=True)
        self._life = asyncio.create_task(self._live())
        await asyncio.wait({self._ready}, timeout=START_S)
        if not self._ready.done():
            raise AgentError("agent_start", f"it was not imported after {START_S:g} s")
        if error := self._ready.result():
            raise error

    async def run(self, task: Task, timeout_s: float) -> Verdict:
        """Run one agent.

        Raises:
            AgentError: it failed, took too long, or the process ended.
        """
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
                raise AgentError("agent_timeout", late(timeout_s), shared=is_blocked)
        except asyncio.CancelledError:
            self._leave(number, answer)
            raise
        finally:
            self._runs -= 1
            if not self._runs:
                self._is_idle.set()
        return _verdict(answer.result())

    async def retire(self) -> None:
        """Wait for the agents in it that end, and end it."""
        try:
            await self._is_idle.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """End it, with all that its agents started."""
        self.has_ended = True
        try:
            await self._kill()
        finally:
            if self._server is not None:
                self._server.close()

    def _leave(self, number: int, answer: "asyncio.Future[_Answer]") -> None:
        """Tell an agent to end; nobody waits, for it may itself wait for what its caller is about to take away."""
        self._send({"number": number})
        look = asyncio.get_running_loop().call_later(LEAVING_S, self._find_stuck, answer)
        answer.add_done_callback(lambda answer: look.cancel())

    def _find_stuck(self, answer: "asyncio.Future[_Answer]") -> None:
        self.is_stuck = self.is_stuck or not answer.done()

    async def _stop(self, number: int, answer: "asyncio.Future[_Answer]") -> bool:
        """Tell an agent to end, and see whether it does; returns whether another may have kept it from its work."""
        heard = self._heard[number] = asyncio.get_running_loop().create_future()
        self._send({"number": number})
        await asyncio.wait({answer, heard}, timeout=BLOCKED_S, return_when=asyncio.FIRST_COMPLETED)
        if heard.done() or answer.done():
            await asyncio.wait({answer}, timeout=GRACE_S)
            self._find_stuck(answer)
            return False
        is_doubtful = len(self._answers) > 1
        self._end = ("agent_blocked", f"an agent kept the event loop of its worker for more than {BLOCKED_S:g} s")
        await self._kill()
        return is_doubtful

    async def _kill(self) -> None:
        """End its process, and wait until that is over."""
        if self._life is not None:
            if not self._life.cancelling():  # once: the second would interrupt the first
                self._life.cancel()
            await asyncio.wait({self._life})

    def _send(self, asked: Mapping[str, Json]) -> None:
        if self._writer is not None and not self.has_ended:
            self._writer.write(json.dumps(asked).encode() + b"\n")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The process is there."""
        if self.has_ended:
            writer.close()
            return
        self._writer, self._serving = writer, asyncio.create_task(self._serve(reader))
        self._serving.add_done_callback(lambda _: writer.close())  # also of a task that is cancelled before it begins

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        """Hear what the process says."""
        with suppress(ConnectionError):
            while line := await reader.readline():
                self._hear(json.loads(line))

    def _hear(self, said: Mapping[str, Json]) -> None:
        number = said.get("number")
        if "ready" in said or "broken" in said:
            if not self._ready.done():
                self._ready.set_result(AgentError("agent_import", str(said["broken"])) if "broken" in said else None)
        elif isinstance(number, int) and "heard" in said:
            if (heard := self._heard.pop(number, None)) is not None and not heard.done():
                heard.set_result(None)
        elif isinstance(number, int) and (answer := self._answers.pop(number, None)) is not None:
            answer.set_result(said)

    async def _live(self) -> None:
        """The process from its start to its end, of which all agents in it are told."""
        most = max(256, FORKS_EACH * self._most)
        program = command(
            self._argv, env=self._env, memory_mb=self._memory_mb, timeout_s=FOR_EVER_S, most_processes=most
        )
        try:
            ended = await program
            self._end = (ended_reason(ended.code), last_words(ended.stdout + ended.stderr))
        except CommandError as error:
            self._end = (f"agent_{error.reason}", str(error))
        except OSError as error:
            self._end = ("agent_start", str(error))
        finally:
            self.has_ended = True
            try:
                if self._serving is not None:  # what they said before it ended counts
                    await asyncio.wait({self._serving}, timeout=LAST_WORDS_S)
                    self._serving.cancel()
                    await asyncio.wait({self._serving})
            finally:
                self._tell_all()

    def _tell_all(self) -> None:
        """All agents in it are gone: whoever it was, if there were several or one that left much behind."""
        reason, detail = self._end
        others = len(self._answers) > 1 or (reason == "agent_memory" and self._number > 1)
        shared = others or reason == "agent_stopped"
        for answer in self._answers.values():
            answer.set_result(AgentError(reason, detail, shared=shared))
        self._answers.clear()
        if not self._ready.done():
            self._ready.set_result(AgentError(reason, detail, shared=shared))


def _verdict(said: _Answer) -> Verdict:
    """What an agent returned.

    Raises:
        AgentError: it raised, or its process is gone.
    """
    if isinstance(said, AgentError):
        raise said
    if "failed" in said:
        raise AgentError(f"agent_{said['failed']}", str(said.get("detail", "")))
    return verdict_of(said)
