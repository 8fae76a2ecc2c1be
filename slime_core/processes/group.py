"""GroupOfWorkers: the workers of a group, called together; when one fails, all end, for they wait for each other.

What a launcher has started them with is its own: it hands over a `GroupWorker` for each.

Example:

    group = GroupOfWorkers(workers)         # a slime_core.roles.WorkerGroup
    await group.built(timeout_s=600.0)
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TypeVar

from slime_core.errors import WorkerError
from slime_core.processes.group_worker import GroupWorker
from slime_core.roles import Place
from slime_core.tasks import cancel_all

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
