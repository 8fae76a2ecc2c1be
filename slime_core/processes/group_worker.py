"""GroupWorker: one worker of a group, on the driver's side, whatever has started it: one call at a time, and its end.

A launcher derives from it, and says how a call is sent, and how the end of the process is known and brought about.

Example:

    class MyWorker(GroupWorker):
        async def _asked(self, method, given): ...      # send, and wait for the Reply
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from slime_core.errors import WorkerError
from slime_core.processes.host import Reply
from slime_core.roles import Place


class GroupWorker(ABC):
    """One worker of a group."""

    BUSY_GRACE_S: ClassVar[float] = 2.0
    """Seconds that a worker in the middle of a call has to end."""
    CLOSE_S: ClassVar[float] = 10.0
    """Seconds that an idle one has for its `close`."""
    DEATH_S: ClassVar[float] = 10.0
    """Seconds after which one that is gone, or was killed, is taken to have ended, though nobody says so."""
    LOG_TAIL_LINES: ClassVar[int] = 15

    def __init__(self, title: str, place: Place, log: Path) -> None:
        """Name it; nothing is started.

        Args:
            title: its group and rank, for errors: "trainer 3".
            place: where it lives.
            log: what it prints.
        """
        self.title, self.place, self.log = title, place, log
        self._turn = asyncio.Lock()
        self._is_asked_to_end = False
        self._told_of_death = asyncio.Event()

    async def call(self, method: str, given: Sequence[object], timeout_s: float | None) -> object:
        """Call `worker.method(*given)`; calls queue up.

        Raises:
            WorkerError: the worker raised, died or did not answer in time.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    return await self._asked(method, given)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise WorkerError(
                    f"{self.title} did not answer {method}() within {timeout_s:g} s; its log is {self.log}"
                ) from None

    async def died_idle(self) -> None:
        """Wait until the process is gone, and no call has told of it or will."""
        await self._over()
        async with self._turn:
            if not self._told_of_death.is_set():
                return
        await asyncio.Event().wait()

    @property
    def is_asked(self) -> bool:
        """Whether it is at a call."""
        return self._turn.locked()

    def death(self) -> WorkerError:
        """What to say of a worker that is gone, or was ended."""
        if self._is_asked_to_end:
            return WorkerError(f"{self.title} was stopped with its group; its log is {self.log}")
        return WorkerError(f"{self._how_it_died()}; the end of its log, {self.log}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of what it printed."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        return "\n".join(lines[-self.LOG_TAIL_LINES :])

    def ask_to_end(self) -> None:
        """Tell it that no call will come any more."""
        self._is_asked_to_end = True

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether its process is known to have ended."""

    @property
    @abstractmethod
    def state(self) -> str:
        """What is known of its process: "pid 4711, stopped"."""

    @abstractmethod
    async def built(self) -> None:
        """Wait until its object is built; errors as in `call`."""

    @abstractmethod
    async def end(self) -> None:
        """See the process gone, with all that it has started."""

    @abstractmethod
    async def _asked(self, method: str, given: Sequence[object]) -> object:
        """Have the process call a method, and wait for what it returns; errors as in `call`, but for its time."""

    @abstractmethod
    async def _over(self) -> None:
        """Wait until the process is gone."""

    @abstractmethod
    def _how_it_died(self) -> str:
        """Which worker died, where, and how: "trainer 3 died (exit code 1)"."""

    def _value(self, what: str, reply: Reply) -> object:
        """What a reply says.

        Raises:
            WorkerError: the worker raised.
            SlimeError: the error of ours that it raised.
        """
        if reply.error is not None:
            raise reply.error
        if reply.traceback:
            raise WorkerError(f"{self.title} raised in {what}; its log is {self.log}\n{reply.traceback}")
        return reply.value
