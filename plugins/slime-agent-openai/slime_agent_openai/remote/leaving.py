"""Leaving: ends the sessions of the runtime that nobody needs any more, beside the run, which waits for none of them.

A session keeps its place until it has ended, so that there are never more than may be; and it is only ended once its
invocation has been answered, for one that is on its way would begin it anew.

Example:

    leaving = Leaving(stop, attempts=5)
    leaving.start()
    leaving.add(session)
    await leaving.close()
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

from slime_agent_openai.failure import AgentError
from slime_agent_openai.remote.aws import NotTaken

AT_ONCE = 4
"""Sessions that are being ended at once."""
BACKOFF_S = 0.5
"""Seconds until what was not taken is sent again, the first time; then twice as long each."""
LONGEST_BACKOFF_S = 20.0
CLOSING_S = 15.0
"""Seconds that all have to end when the run does."""

log = logging.getLogger(__name__)


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
