"""LocalWorker: one worker of a group, on the driver's side: its calls, its end, and the log that tells of it."""

import asyncio
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import cast

from slime_core.errors import WorkerError
from slime_core.processes.channel import pickled
from slime_core.processes.forked import Forked
from slime_core.processes.group_worker import GroupWorker
from slime_core.processes.host import Reply
from slime_core.processes.serve import BUILD, ENTRY, NUMBER, Order
from slime_core.processes.server import Server
from slime_core.processes.tree import is_stopped


class LocalWorker(GroupWorker):
    """One process of a group; `launch` starts it."""

    def __init__(self, order: Order, log: Path) -> None:
        """Nothing is started yet; what it prints is appended to `log`."""
        super().__init__(f"{order.spec.name} {order.place.rank}", order.place, log)
        self._order = order
        self._process: Forked | None = None
        self._calls = BUILD
        self._answered = BUILD - 1
        self._mourning: asyncio.Task[None] | None = None

    def launch(self, server: Server, environment: dict[str, str]) -> None:
        """Have the process forked; waits for no import.

        Raises:
            WorkerError: the system has no room for it.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as output:
                self._process = server.fork(ENTRY, title=self.title, output=output.fileno(), environment=environment)
        except OSError as error:
            raise WorkerError(f"{self.title} could not be started: {error}") from error

    async def built(self) -> None:
        """Send what is to be built, and wait for it; errors as in `call`."""
        self._mourning = asyncio.create_task(self._mourn())
        async with self._turn:
            await self._exchange("its construction", self._order)

    @property
    def state(self) -> str:
        """Its process, and whether somebody has stopped it."""
        pid = self._running.pid
        return f"pid {pid}, stopped" if is_stopped(pid) else f"pid {pid}"

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended."""
        return self._process is not None and self._process.is_over

    def ask_to_end(self) -> None:
        """Tell it that no call will come any more."""
        super().ask_to_end()
        if self._process is not None:
            self._process.channel.end()

    async def end(self) -> None:
        """See the process and all that it has started gone, by force if need be; then let go of its files."""
        if (process := self._process) is None:
            return
        try:
            async with asyncio.timeout(self.CLOSE_S if self._answered == self._calls else self.BUSY_GRACE_S):
                await process.ended()
        except TimeoutError:
            process.kill()
        await self._gone()
        process.forget()
        process.channel.cut()
        if self._mourning is not None:
            self._mourning.cancel()
        async with self._turn:  # whoever waits for an answer sees the end first
            process.close()

    @property
    def _running(self) -> Forked:
        assert self._process is not None, "launched"
        return self._process

    async def _asked(self, method: str, given: Sequence[object]) -> object:
        self._calls += 1
        return await self._exchange(f"{method}()", (method, tuple(given)))

    async def _over(self) -> None:
        await self._running.ended()

    def _how_it_died(self) -> str:
        return f"{self.title} died ({self._running.how})"

    async def _exchange(self, what: str, asked: object) -> object:
        """Send a call and wait for its reply; late ones, to calls that were cancelled, are passed over."""
        if self._is_asked_to_end:
            raise self.death()
        channel, number = self._running.channel, self._calls
        body = pickled(asked)
        try:
            await channel.send(NUMBER.pack(number), body)
            while NUMBER.unpack((frame := memoryview(await channel.receive()))[: NUMBER.size]) != (number,):
                pass
        except (EOFError, OSError):
            await self._gone()
            self._told_of_death.set()
            raise self.death() from None
        self._answered = number
        return self._value(what, cast(Reply, ForkingPickler.loads(frame[NUMBER.size :])))

    async def _mourn(self) -> None:
        """Cut the connection of a process that has ended, since what it started may hold the other end open."""
        await self._running.ended()
        self._running.channel.cut()

    async def _gone(self) -> None:
        """Wait for the word of its end; one that has merely closed its connection is killed."""
        for _ in range(2):
            try:
                async with asyncio.timeout(self.DEATH_S):
                    await self._running.ended()
                    return
            except TimeoutError:
                self._running.kill()
