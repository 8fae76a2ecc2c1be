"""Worker groups on the driver's side: call all workers of a group together, and end all when one fails.

Workers of a group wait for each other in collective operations, so the others cannot finish after one has died. A
launcher derives from `GroupWorker` and implements how to send a call and how to end the process.

Example:

    group = GroupOfWorkers(workers)         # a slime_core.roles.WorkerGroup
    await group.built(timeout_s=600.0)
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import ClassVar, TypeVar, cast

from slime_core.aio import cancel_all
from slime_core.errors import WorkerError
from slime_core.processes.channel import pickled
from slime_core.processes.limits import is_stopped
from slime_core.processes.server import Forked, Server
from slime_core.processes.worker import BUILD, ENTRY, NUMBER, Order, Reply
from slime_core.roles import Place

# GroupWorker: one worker of a group, on the driver's side, whatever has started it: one call at a time, and its end.


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


# LocalWorker: one worker of a group, on the driver's side: its calls, its end, and the log that tells of it.


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


# GroupOfWorkers: the workers of a group, called together; when one fails, all end, for they wait for each other.

ResultT = TypeVar("ResultT")

LAST_WORDS_S = 0.3
"""Seconds within which the end of a process is known, when another one has complained of it."""


class GroupOfWorkers:
    """Implements `slime_core.roles.WorkerGroup`."""

    def __init__(self, workers: Sequence[GroupWorker]) -> None:
        """Take over started workers, in rank order."""
        self._workers = list(workers)
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = asyncio.Event()
        self._death: WorkerError | None = None

    @property
    def size(self) -> int:
        """Processes."""
        return len(self._workers)

    @property
    def places(self) -> Sequence[Place]:
        """Where each of them lives."""
        return [worker.place for worker in self._workers]

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by its owner or since a worker failed."""
        return self._closing is not None

    async def built(self, timeout_s: float | None) -> None:
        """Wait until every worker has built its object.

        Raises:
            WorkerError: one could not, or some have not in time; then it says which.
        """
        tasks = {asyncio.create_task(worker.built()): worker for worker in self._workers}
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
            if waiting := [worker for task, worker in tasks.items() if not task.done()]:
                names = ", ".join(worker.title for worker in waiting)
                raise WorkerError(
                    f"{names}: not built within {timeout_s:g} s ({self.size - len(waiting)} of {self.size} are); "
                    f"the end of the log of {waiting[0].title}, {waiting[0].log}:\n{waiting[0].log_tail()}"
                )
        except BaseException:
            await self.close()
            raise
        finally:
            await cancel_all(tasks)

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call `method` on every worker at once; see `WorkerGroup.call`."""
        given = [()] * self.size if arguments is None else [(argument,) for argument in arguments]
        calls = [worker.call(method, each, timeout_s) for worker, each in zip(self._workers, given, strict=True)]
        return await self._all(calls)

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call `method` on one worker."""
        return (await self._all([self._workers[rank].call(method, (argument,), timeout_s)]))[0]

    def unanswered(self) -> Mapping[int, str]:
        """Workers at a call; see `WorkerGroup.unanswered`."""
        return {rank: worker.state for rank, worker in enumerate(self._workers) if worker.is_asked}

    async def watch(self) -> None:
        """Wait until the group is closed; see `WorkerGroup.watch`."""
        closed = asyncio.create_task(self._is_closed.wait())
        deaths = {asyncio.create_task(worker.died_idle()): worker for worker in self._workers}
        try:
            await asyncio.wait({closed, *deaths}, return_when=asyncio.FIRST_COMPLETED)
            dead = [worker for task, worker in deaths.items() if task.done()]
        finally:
            await cancel_all([closed, *deaths])
        if dead and not self.is_closed:
            error = self._death = dead[0].death()
            await self.close()
            raise error

    async def close(self) -> None:
        """Stop all workers; calls under way fail."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)  # whoever gives up waiting leaves nothing half closed

    async def _close(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()
        await asyncio.gather(*(worker.end() for worker in self._workers))
        self._is_closed.set()

    async def _all(self, calls: Sequence[Coroutine[None, None, ResultT]]) -> list[ResultT]:
        tasks = [asyncio.create_task(call) for call in calls]
        try:
            return list(await asyncio.gather(*tasks))
        except WorkerError as error:
            # One rank's failure leaves the others waiting for it: none of them can be used again.
            cause = await self._cause(error)
            await self.close()
            raise cause from (error if cause is not error else None)
        finally:
            await cancel_all(tasks)

    async def _cause(self, error: WorkerError) -> WorkerError:
        """The death that an error came of: one that loses its peer may say so before the peer is known to be gone."""
        if self._death is not None:  # the group is closed for it: that the others were stopped is not news
            return self._death
        until = asyncio.get_running_loop().time() + LAST_WORDS_S
        while not (dead := [worker for worker in self._workers if worker.is_gone]):
            if asyncio.get_running_loop().time() > until:
                return error
            await asyncio.sleep(LAST_WORDS_S / 10)
        return error if any(str(error) == str(worker.death()) for worker in dead) else dead[0].death()
