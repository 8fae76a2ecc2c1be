"""RemoteAgents: agents in a Bedrock AgentCore runtime, invoked by its ARN; their results are read from S3.

Each sample has its own session of the runtime. The runtime answers at once with the result's key, which is polled at
growing intervals. Every session is stopped afterwards, in the background, and occupies its place until then. A session
is stopped only once its invocation was answered, since a later invocation would start it again.

Payload, answer and result have the format of awslabs' agentcore-rl-toolkit: the row's fields and `_rollout`; the key;
an object with `rewards`.

Example:

    agents = RemoteAgents(Aws(settings), settings)
    await agents.start()
    verdict = await agents.run(task, timeout_s=600.0)
"""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TypeVar
from uuid import uuid4

from slime_agent_openai.aws import Aws, NotAccepted
from slime_agent_openai.errors import MAX_DETAIL, AgentError
from slime_agent_openai.remote_settings import RemoteSettings
from slime_agent_openai.task import Task, Verdict
from slime_core.sample import Json

QUOTED = 300  # Characters of an answer that an error quotes
BACKOFF_S = 0.5  # Seconds before the first retry of a refused call; doubles each time
LONGEST_BACKOFF_S = 20.0
CLOSING_S = 15.0  # Seconds to stop all sessions when the run ends
THREADS_CLOSING_S = 0.3  # Seconds to end abandoned calls when the run ends
ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)


class Threads:
    """Runs blocking calls in threads, at most `most` at once. The threads do not keep the process alive.

    A thread cannot be cancelled: an abandoned call occupies its place until it ends.
    """

    def __init__(self, most: int) -> None:
        self._slots = asyncio.Semaphore(most)
        self._running: set[asyncio.Future[object]] = set()

    async def call(self, function: Callable[[], ResultT]) -> ResultT:
        return await asyncio.shield(await self.begin(function))

    async def begin(self, function: Callable[[], ResultT]) -> "asyncio.Future[ResultT]":
        """Wait for a place and start the call; shield the returned future where you await it."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[ResultT] = loop.create_future()
        self._running.add(ended)  # type: ignore[arg-type]  # of any result
        ended.add_done_callback(self._ended)

        def run() -> None:
            try:
                settle = partial(ended.set_result, function())
            except BaseException as error:
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                settle = partial(ended.set_exception, failure)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name="agent-remote", daemon=True).start()
        return ended

    async def wait(self, timeout_s: float) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)

    def _ended(self, ended: "asyncio.Future[ResultT]") -> None:
        self._slots.release()
        self._running.discard(ended)
        ended.exception()  # marks the error as retrieved, since the caller may be gone


def payload_of(settings: RemoteSettings, task: Task, input_id: str) -> bytes:
    """Input of a sample's agent: the row's metadata, prompt and label, and the URL of the model."""
    rollout: dict[str, Json] = {
        "exp_id": settings.exp_id,
        "input_id": input_id,
        "s3_bucket": settings.s3_bucket,
        "base_url": task.openai_base_url,
        "api_key": task.api_key,
        "model_id": settings.model_id,
        "sampling_params": dict(task.sampling),
        "evaluation": task.evaluation,
    }
    fields: dict[str, object] = {settings.prompt_key: task.prompt, settings.label_key: task.label}
    fields.pop("", None)
    return json.dumps({**fields, **task.metadata, "_rollout": {**rollout, **settings.rollout}}).encode()


def result_key_of(answer: bytes, bucket: str) -> str:
    """Key of the result, from the runtime's answer."""
    data = _object(answer, "agent_remote_answer", "the runtime's answer")
    key = data.get("result_key")
    if data.get("s3_bucket") != bucket or not isinstance(key, str) or not key:
        raise AgentError(
            "agent_remote_answer",
            f"the runtime answered {_quoted(answer)}; expected s3_bucket {bucket!r} and a result_key. Its entry point "
            "must be the rollout_entrypoint of an AgentCoreRLApp, which answers at once",
        )
    return key


def reward_of(result: bytes, reward_key: str) -> Verdict:
    """The reward in a result; None if `reward_key` is empty."""
    data = _object(result, "agent_remote_result", "the result")
    if data.get("status_code", 200) != 200:
        detail = f"{data.get('stop_reason', '')}\n{data.get('traceback', '')}".strip()
        raise AgentError("agent_remote_failed", detail or _quoted(result))
    if not reward_key:
        return None
    if reward_key not in data:
        there = ", ".join(list(data)[:10])
        raise AgentError("agent_remote_reward", f"the result has no {reward_key!r}; it has {there}"[:MAX_DETAIL])
    reward = data[reward_key]
    match reward:
        case [*_, last] if isinstance(last, float | int):
            return _finite(last, reward)
        case float() | int():
            return _finite(reward, reward)
        case dict() if reward:
            return {str(name): _finite(value, reward) for name, value in reward.items()}
    raise _no_reward(reward)


def _finite(number: object, reward: object) -> float:
    try:
        if isinstance(number, float | int) and isfinite(number):
            return float(number)
    except OverflowError:  # an integer too large for a float
        pass
    raise _no_reward(reward)


def _no_reward(reward: object) -> AgentError:
    return AgentError("agent_remote_reward", f"the reward is {reward!r:.200}; expected finite numbers, one or by name")


def _object(raw: bytes, reason: str, what: str) -> dict[str, Json]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AgentError(reason, f"{what} is not JSON ({error}): {_quoted(raw)}") from None
    if not isinstance(data, dict):
        raise AgentError(reason, f"{what} is a {type(data).__name__}, expected an object: {_quoted(raw)}")
    return data


def _quoted(raw: bytes) -> str:
    return repr(raw[:QUOTED].decode(errors="replace"))


@dataclass(slots=True)
class RemoteSession:
    """One session of the runtime."""

    id: str = field(default_factory=lambda: str(uuid4()))  # AWS requires at least 33 characters
    invocation: "asyncio.Future[bytes] | None" = None  # running or answered; None: nothing to stop


def backoff_s(attempt: int) -> float:
    """Seconds until the next attempt after this one, counted from 0."""
    return min(BACKOFF_S * 2.0**attempt, LONGEST_BACKOFF_S)


class RateLimiter:
    """Limits calls per second, first come, first served; shared by all calls that count against one quota."""

    def __init__(self, a_second: float) -> None:
        self._interval = 1.0 / a_second
        self._next = 0.0

    async def __call__(self) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)


class RemoteAgents:
    """Implements `slime_agent_openai.generator.Agents`."""

    def __init__(self, aws: Aws, settings: RemoteSettings) -> None:
        self._aws, self._settings = aws, settings
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._threads, self._rate_limiter = Threads(settings.max_pool_connections), RateLimiter(settings.tps_limit)
        self._ending: set[asyncio.Task[None]] = set()  # sessions being stopped; the run does not wait for them
        self.counts: Counter[str] = Counter()  # refused invocations, by reason

    async def start(self) -> None:
        await Threads(1).call(self._aws.open)  # in a separate thread: a close need not wait for it

    async def close(self) -> None:
        if self._ending:
            try:
                _, left = await asyncio.wait(self._ending, timeout=CLOSING_S)
                if left:
                    log.warning("%d runtime sessions were not stopped; they stop when idle", len(left))
            finally:
                for each in self._ending:
                    each.cancel()
        await self._threads.wait(THREADS_CLOSING_S)
        self._aws.close()
        if self.counts:
            reasons = ", ".join(f"{name} {count} times" for name, count in self.counts.most_common())
            log.warning("the runtime refused invocations at first: %s. Lower tps_limit to avoid this", reasons)

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one agent. Its time limit does not include the wait for a place or its cold start."""
        await self._slots.acquire()
        session = RemoteSession()
        try:
            key = result_key_of(await self._invoke(task, session), self._settings.s3_bucket)
            return reward_of(await self._result(key, timeout_s), self._settings.reward_key)
        except AgentError as error:
            raise AgentError(error.reason, f"{error.detail} (runtime session {session.id})") from None
        finally:
            ending = asyncio.create_task(self._ended(session))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    run_alone = run  # Each agent has its machine already

    async def _invoke(self, task: Task, session: RemoteSession) -> bytes:
        payload = payload_of(self._settings, task, session.id)
        for attempt in range(self._settings.max_retry_attempts + 1):
            if attempt:
                await asyncio.sleep(backoff_s(attempt - 1))
            await self._rate_limiter()
            session.invocation = await self._threads.begin(partial(self._aws.invoke, session.id, payload))
            try:
                return await asyncio.shield(session.invocation)
            except NotAccepted as error:
                session.invocation = None
                if not error.may_retry:
                    raise
                self.counts[error.reason] += 1
                last = error
        raise AgentError("agent_remote_busy", f"the runtime refused {attempt + 1} attempts, the last: {last.detail}")

    async def _result(self, key: str, timeout_s: float) -> bytes:
        poll_s = self._settings.initial_interval
        try:
            async with asyncio.timeout(timeout_s):
                while (result := await self._fetch(key)) is None:
                    await asyncio.sleep(poll_s)
                    poll_s = min(poll_s * self._settings.backoff_factor, self._settings.max_interval)
                return result
        except TimeoutError:
            where = f"s3://{self._settings.s3_bucket}/{key}"
            raise AgentError("agent_remote_timeout", f"there was no result at {where} after {timeout_s:g} s") from None

    async def _fetch(self, key: str) -> bytes | None:
        try:
            return await self._threads.call(partial(self._aws.fetch, key))
        except NotAccepted as error:
            if error.may_retry:
                return None  # a later attempt may succeed
            raise

    async def _ended(self, session: RemoteSession) -> None:
        """Stop a session if it was invoked, and free its place."""
        try:
            if session.invocation is not None:
                await asyncio.wait({session.invocation})
                await self._stop(session.id)
        finally:
            self._slots.release()

    async def _stop(self, session_id: str) -> None:
        for attempt in range(self._settings.max_retry_attempts + 1):
            await self._rate_limiter()
            try:
                return await self._threads.call(partial(self._aws.stop, session_id))
            except AgentError as error:
                if error.reason == "agent_remote_ResourceNotFoundException":
                    return None  # the session ended on its own
                last = error
                if not (isinstance(error, NotAccepted) and error.may_retry):
                    break
            await asyncio.sleep(backoff_s(attempt))
        log.warning("runtime session %s was not stopped: %s", session_id, last)
        return None
