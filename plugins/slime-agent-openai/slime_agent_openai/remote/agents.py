"""RemoteAgents: agents that run in a runtime of Bedrock AgentCore: invoked by its ARN, their results read from S3.

Each sample has a session of the runtime of its own. The runtime takes the invocation and answers at once where the
result will be; there it is looked for, less and less often. However that ends, the session is stopped.

Example:

    agents = RemoteAgents(Aws(target), form, RemoteLimits(), reward_key="rewards")
    await agents.start()
    verdict = await agents.run(task, timeout_s=600.0)
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial

from slime_agent_openai.failure import AgentError
from slime_agent_openai.remote.aws import Aws, NotTaken
from slime_agent_openai.remote.leaving import Leaving, RemoteSession, backoff_s
from slime_agent_openai.remote.threads import Threads
from slime_agent_openai.remote.wire import Form, place_of, verdict_of
from slime_agent_openai.task import Task, Verdict

CLOSING_S = 0.3
"""Seconds for calls that nobody waits for to end when the run does."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """What is asked of AWS, and how often."""

    sessions: int = 100
    """At once."""
    calls: int = 100
    """To AWS, at once."""
    tps: float = 25.0
    """Invocations and stops a second."""
    attempts: int = 5
    """At an invocation or a stop that was not taken, after the first."""
    look_s: float = 0.5
    """Until a result is looked for again, the first time."""
    longest_look_s: float = 5.0
    """The same, at most."""
    factor: float = 1.5
    """What it grows by."""


class Pace:
    """So many a second and no more, first come, first served: one for all that counts against one quota."""

    def __init__(self, a_second: float) -> None:
        """Nobody waits."""
        self._interval = 1.0 / a_second
        self._next = 0.0

    async def __call__(self) -> None:
        """Wait for one's turn."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)


class RemoteAgents:
    """Implements `slime_agent_openai.generator.Agents`."""

    def __init__(self, aws: Aws, form: Form, limits: RemoteLimits, *, reward_key: str) -> None:
        """Nothing is connected.

        Args:
            aws: what is called.
            form: what an invocation says.
            limits: how often.
            reward_key: where a result has the reward; empty leaves it to the run.
        """
        self._aws, self._form, self._limits, self._reward_key = aws, form, limits, reward_key
        self._places = asyncio.Semaphore(limits.sessions)
        self._threads, self._pace = Threads(limits.calls), Pace(limits.tps)
        self._leaving = Leaving(self._stop, limits.attempts)
        self.counts: Counter[str] = Counter()
        """How often what happened, by the reason that it is told by."""

    async def start(self) -> None:
        """Connect.

        Raises:
            ConfigError: there are no credentials, or results cannot be read.
        """
        await Threads(1).call(self._aws.open)  # on its own: a close need not wait for it
        self._leaving.start()

    async def close(self) -> None:
        """Stop all sessions that are left."""
        await self._leaving.close()
        await self._threads.wait(CLOSING_S)
        self._aws.close()
        if self.counts:
            told = ", ".join(f"{name} {count} times" for name, count in self.counts.most_common())
            log.warning("the runtime did not take invocations at once: %s; tps_limit is what paces them", told)

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one. Neither what it waits for a place counts against its time, nor what the runtime takes to begin it.

        Raises:
            AgentError: it failed, or took too long.
        """
        await self._places.acquire()
        session = RemoteSession(self._places.release)
        try:
            key = place_of(await self._invoked(task, session), self._form.s3_bucket)
            return verdict_of(await self._result(key, timeout_s), self._reward_key)
        except AgentError as error:
            raise AgentError(error.reason, f"{error.detail} (runtime session {session.id})") from None
        finally:
            self._leaving.add(session)

    run_alone = run
    """Each has a machine of its own already."""

    async def _invoked(self, task: Task, session: RemoteSession) -> bytes:
        """The runtime's answer, where it takes the invocation.

        Raises:
            AgentError: it does not.
        """
        payload = self._form.payload(task, input_id=session.id)
        for attempt in range(self._limits.attempts + 1):
            if attempt:
                await asyncio.sleep(backoff_s(attempt - 1))
            await self._pace()
            session.invocation = await self._threads.begin(partial(self._aws.invoke, session.id, payload))
            try:
                return await asyncio.shield(session.invocation)
            except NotTaken as error:
                session.invocation = None
                if not error.again:
                    raise
                self.counts[error.reason] += 1
                last = error
        raise AgentError("agent_remote_busy", f"it was not taken in {attempt + 1} attempts, the last: {last.detail}")

    async def _result(self, key: str, timeout_s: float) -> bytes:
        """What is at a key, once it is there.

        Raises:
            AgentError: it never is, or cannot be read.
        """
        limits = self._limits
        look_s = limits.look_s
        try:
            async with asyncio.timeout(timeout_s):
                while (found := await self._found(key)) is None:
                    await asyncio.sleep(look_s)
                    look_s = min(look_s * limits.factor, limits.longest_look_s)
                return found
        except TimeoutError:
            where = f"s3://{self._form.s3_bucket}/{key}"
            raise AgentError("agent_remote_timeout", f"there was no result at {where} after {timeout_s:g} s") from None

    async def _found(self, key: str) -> bytes | None:
        try:
            return await self._threads.call(partial(self._aws.fetch, key))
        except NotTaken as error:
            if error.again:
                return None  # it may be read later
            raise

    async def _stop(self, session_id: str) -> None:
        await self._pace()
        await self._threads.call(partial(self._aws.stop, session_id))
