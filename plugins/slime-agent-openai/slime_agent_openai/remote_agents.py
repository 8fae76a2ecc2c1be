"""RemoteAgents: agents in a runtime of Bedrock AgentCore: invoked by its ARN, their results read from S3.

Each sample has its own session of the runtime. The runtime answers at once with the key of the result, which is polled
at growing intervals. The session is always stopped afterwards, in the background. A session keeps its place until it
has ended, and is only stopped once its invocation is answered, since a later invocation would begin it again.

Payload, answer and result are those of awslabs' agentcore-rl-toolkit: the row's fields with `_rollout` beside them; the
key; an object with `rewards`.

Example:

    agents = RemoteAgents(Aws(target), form, RemoteLimits(), reward_key="rewards")
    await agents.start()
    verdict = await agents.run(task, timeout_s=600.0)
"""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TypeVar
from uuid import uuid4

from slime_agent_openai.aws import Aws, NotTaken
from slime_agent_openai.errors import SHOWN, AgentError
from slime_agent_openai.task import Task, Verdict
from slime_core.sample import Json

ResultT = TypeVar("ResultT")


class Threads:
    """One for what shares a number of connections."""

    def __init__(self, most: int) -> None:
        """Nothing runs; `most` may, at once."""
        self._places = asyncio.Semaphore(most)
        self._running: set[asyncio.Future[None]] = set()

    async def call(self, act: Callable[[], ResultT]) -> ResultT:
        """What it returns, or raises."""
        return await asyncio.shield(await self.begin(act))

    async def begin(self, act: Callable[[], ResultT]) -> "asyncio.Future[ResultT]":
        """Wait for a place, and begin; whoever waits for the end should shield it."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[ResultT] = loop.create_future()
        ended.add_done_callback(_seen)
        gone: asyncio.Future[None] = loop.create_future()
        self._running.add(gone)

        def end(settle: Callable[[], None]) -> None:
            self._places.release()
            self._running.discard(gone)
            gone.set_result(None)
            if not ended.done():
                settle()

        def run() -> None:
            try:
                made = act()
            except BaseException as error:
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                _tell(loop, lambda: end(lambda: ended.set_exception(failure)))
            else:
                _tell(loop, lambda: end(lambda: ended.set_result(made)))

        threading.Thread(target=run, name="agent-remote", daemon=True).start()
        return ended

    async def wait(self, timeout_s: float) -> None:
        """Wait until all have ended, but no longer than that."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(act)


def _seen(ended: "asyncio.Future[ResultT]") -> None:
    """Whoever asked may have gone: its error is not lost, it is nobody's."""
    if not ended.cancelled():
        ended.exception()


QUOTED = 300
"""Characters of an answer that an error quotes."""


@dataclass(frozen=True, slots=True)
class Form:
    """What all payloads of a run have in common."""

    exp_id: str
    """Begins the keys of the results."""
    s3_bucket: str
    """Where they are written."""
    model_id: str
    """What the agent is to call the model."""
    prompt_key: str
    """Where the prompt is; empty: nowhere."""
    label_key: str
    """Where the label is; empty: nowhere."""
    more: Mapping[str, Json] = field(default_factory=dict)
    """What else `_rollout` holds."""

    def payload(self, task: Task, input_id: str) -> bytes:
        """What one sample's agent is given: its row's metadata with prompt and label, and where the model is."""
        rollout: dict[str, Json] = {
            "exp_id": self.exp_id,
            "input_id": input_id,
            "s3_bucket": self.s3_bucket,
            "base_url": task.openai_base_url,
            "api_key": task.api_key,
            "model_id": self.model_id,
            "sampling_params": dict(task.sampling),
            "evaluation": task.evaluation,
        }
        given: dict[str, object] = {self.prompt_key: task.prompt, self.label_key: task.label}
        given.pop("", None)
        return json.dumps({**given, **task.metadata, "_rollout": {**rollout, **self.more}}).encode()


def place_of(answer: bytes, bucket: str) -> str:
    """The key that a runtime says the result will have.

    Raises:
        AgentError: it says something else, or names another bucket.
    """
    said = _object(answer, "agent_remote_answer", "the runtime's answer")
    key = said.get("result_key")
    if said.get("s3_bucket") != bucket or not isinstance(key, str) or not key:
        raise AgentError(
            "agent_remote_answer",
            f"the runtime answered {_quoted(answer)}; expected s3_bucket {bucket!r} and a result_key. Is its entry "
            "point an AgentCoreRLApp's rollout_entrypoint, which answers at once?",
        )
    return key


def reward_of(result: bytes, reward_key: str) -> Verdict:
    """The reward that a result holds; None where no key says which.

    Raises:
        AgentError: the agent failed, or there is no finite reward.
    """
    said = _object(result, "agent_remote_result", "the result")
    if said.get("status_code", 200) != 200:
        told = f"{said.get('stop_reason', '')}\n{said.get('traceback', '')}".strip()
        raise AgentError("agent_remote_failed", told or _quoted(result))
    if not reward_key:
        return None
    if reward_key not in said:
        there = ", ".join(list(said)[:10])
        raise AgentError("agent_remote_reward", f"the result has no {reward_key!r}; it has {there}"[:SHOWN])
    given = said[reward_key]
    match given:
        case [*_, last] if isinstance(last, float | int):
            return _finite(last, given)
        case float() | int():
            return _finite(given, given)
        case dict() if given:
            return {str(name): _finite(value, given) for name, value in given.items()}
    raise _no_reward(given)


def _finite(number: object, given: object) -> float:
    """One number of a reward.

    Raises:
        AgentError: it is none, or not finite.
    """
    try:
        if isinstance(number, float | int) and isfinite(number):
            return float(number)
    except OverflowError:  # an integer that no float holds
        pass
    raise _no_reward(given)


def _no_reward(given: object) -> AgentError:
    return AgentError("agent_remote_reward", f"the reward is {given!r:.200}; expected a finite number, or some by name")


def _object(raw: bytes, reason: str, what: str) -> dict[str, Json]:
    """The object that JSON says.

    Raises:
        AgentError: it is not JSON, or something else.
    """
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AgentError(reason, f"{what} is not JSON ({error}): {_quoted(raw)}") from None
    if not isinstance(said, dict):
        raise AgentError(reason, f"{what} is a {type(said).__name__}, expected an object: {_quoted(raw)}")
    return said


def _quoted(raw: bytes) -> str:
    return repr(raw[:QUOTED].decode(errors="replace"))


AT_ONCE = 4
"""Sessions that are being ended at once."""
BACKOFF_S = 0.5
"""Seconds until what was not taken is sent again, the first time; then twice as long each."""
LONGEST_BACKOFF_S = 20.0
CLOSING_S = 15.0
"""Seconds that all have to end when the run does."""


@dataclass(slots=True)
class RemoteSession:
    """One session of the runtime."""

    release: Callable[[], None]
    """Gives its place to another."""
    id: str = field(default_factory=lambda: str(uuid4()))
    """AWS wants 33 characters or more."""
    invocation: "asyncio.Future[bytes] | None" = None
    """On its way or answered; None where there is nothing to end."""


class Leaving:
    """One for all sessions of a run."""

    def __init__(self, stop: Callable[[str], Awaitable[None]], attempts: int) -> None:
        """Nothing runs.

        Args:
            stop: ends the session of an id, or raises an AgentError.
            attempts: at each, after the first.
        """
        self._stop, self._attempts = stop, attempts
        self._left: asyncio.Queue[RemoteSession] = asyncio.Queue()
        self._unended = 0
        self._at_work: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Be ready."""
        self._at_work = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]

    def add(self, session: RemoteSession) -> None:
        """End one, if there is anything to end, and then give its place away."""
        if session.invocation is None:
            session.release()
        else:
            self._unended += 1
            self._left.put_nowait(session)

    async def close(self) -> None:
        """End those that are left, as far as that takes no longer than CLOSING_S."""
        left = asyncio.create_task(self._left.join())
        try:
            await asyncio.wait({left}, timeout=CLOSING_S)
            if not left.done():
                log.warning("%d sessions of the runtime were not ended; they end when idle", self._unended)
        finally:
            for task in (left, *self._at_work):
                task.cancel()
            await asyncio.wait({left, *self._at_work})
            self._at_work = []

    async def _work(self) -> None:
        while True:
            session = await self._left.get()
            try:
                await self._end(session)
                self._unended -= 1
            finally:
                session.release()
                self._left.task_done()

    async def _end(self, session: RemoteSession) -> None:
        if session.invocation is not None and not session.invocation.done():
            await asyncio.wait({session.invocation})
        for attempt in range(self._attempts + 1):
            try:
                await self._stop(session.id)
                return
            except AgentError as error:
                if error.reason == "agent_remote_ResourceNotFoundException":
                    return  # it has ended by itself
                if not (isinstance(error, NotTaken) and error.again and attempt < self._attempts):
                    log.warning("session %s of the runtime was not ended: %s", session.id, error)
                    return
            await asyncio.sleep(backoff_s(attempt))


def backoff_s(attempt: int) -> float:
    """Seconds until another attempt, after this one, counted from 0."""
    return min(BACKOFF_S * 2.0**attempt, LONGEST_BACKOFF_S)


THREADS_CLOSING_S = 0.3
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
        await self._threads.wait(THREADS_CLOSING_S)
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
            return reward_of(await self._result(key, timeout_s), self._reward_key)
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
