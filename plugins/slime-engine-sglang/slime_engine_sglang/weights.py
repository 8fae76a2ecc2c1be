"""ServedWeights: which weights a server has, and how it comes to others: to all of them, or to none.

Example:

    weights = ServedWeights(calls, Folder(model), NewWeights.RETRACT)
    await weights.switch(server, publications.prepare(channel, 3), 3)
    weights.version                                 # 3
"""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from slime_core.errors import SlimeError, WorkerError
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.server import Server, Table

AS_STARTED = "default"
"""What SGLang calls the weights that it was started with."""


class Untouched(WorkerError):
    """Weights could not be loaded, and those that are served are as they were."""


class Stuck(WorkerError):
    """Weights could not be loaded, and the server waits for others who will not come: it is of no use any more."""


class NewWeights(enum.StrEnum):
    """What becomes of answers under way when new weights come."""

    RETRACT = "retract"
    """They are put back, and go on from the tokens that they have, with keys and values of the new weights."""
    IN_PLACE = "in_place"
    """They go on as they are, with keys and values of the old weights."""
    WAIT = "wait"
    """They end first."""


class Source(Protocol):
    """Where a server gets weights from."""

    lasts: ClassVar[bool]
    """Whether it may be loaded again."""

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        """Have it load them, under a name; `flush` empties its cache, too.

        Raises:
            Untouched: it could not.
            Stuck: it could not, and can do nothing else any more.
            ModelError, WorkerError: the same, and it may have some of them now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A model directory that the server can read; it may be loaded again at any time."""

    path: Path
    lasts: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        """By `/update_weights_from_disk`; see `Source`."""
        body: Table = {"model_path": str(self.path.absolute()), "weight_version": version, "flush_cache": flush}
        await server.ask("/update_weights_from_disk", body)


class ServedWeights:
    """Which source and version a server has."""

    def __init__(self, calls: Calls, model: Source, new_weights: NewWeights) -> None:
        """The server has the weights that it was started with.

        Args:
            calls: what is under way there.
            model: what it was started with.
            new_weights: what becomes of that when it switches.
        """
        self._calls = calls
        self.mode = new_weights
        """What becomes of answers under way."""
        self._served: tuple[Source, str] = (model, AS_STARTED)
        self._switching = asyncio.Lock()
        self._lost = False

    @property
    def version(self) -> int:
        """Version of what is served; -1 where nothing was loaded yet."""
        return -1 if self._served[1] == AS_STARTED else int(self._served[1])

    @property
    def is_switching(self) -> bool:
        """Whether weights are being loaded."""
        return self._switching.locked()

    @property
    def are_lost(self) -> bool:
        """Whether the server has given up the memory that they are in, and has loaded none since."""
        return self._lost

    @property
    def can_be_lost(self) -> bool:
        """Whether what is served could be loaded again."""
        return self._served[0].lasts

    def marked(self, body: Table) -> Table:
        """A request's body: what it begins with is not taken from the cache where that is of weights before these."""
        return {**body, "extra_key": self._served[1]} if self.mode is NewWeights.IN_PLACE else body

    def lose(self) -> None:
        """The server gives up the memory that they are in."""
        self._lost = True

    async def restore(self, server: Server) -> None:
        """Have what is served loaded again, if it was lost and nothing else has come since.

        Raises:
            ModelError, WorkerError: it cannot be.
        """
        if not self._lost:
            return
        async with self._switching:
            if self._lost:
                await self._load(server, *self._served)

    async def switch(self, server: Server, source: Source, version: int) -> None:
        """Have others loaded; if that fails, or who waits for it is cancelled, what was served is loaded again.

        Raises:
            ModelError, WorkerError: it could not be loaded.
        """
        given_up = asyncio.Event()
        switch = self._calls.behind(self._switched(server, source, str(version), given_up))
        try:
            await asyncio.shield(switch)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def _switched(self, server: Server, source: Source, version: str, given_up: asyncio.Event) -> None:
        """Nothing begins or goes on meanwhile. SGLang undoes nothing of weights that fail half-way: it is done here."""
        async with self._switching, self._calls.held(), self._paused(server):
            try:
                await self._load(server, source, version)
            except (Untouched, Stuck):
                raise
            except SlimeError as error:
                try:
                    await self._load(server, *self._served)
                except SlimeError as worse:
                    raise WorkerError(f"{error}; nor can what was served be loaded again: {worse}") from error
                raise
            if given_up.is_set():
                await self._load(server, *self._served)
            else:
                self._served = (source, version)

    async def _load(self, server: Server, source: Source, version: str) -> None:
        lost, self._lost = self._lost, True
        try:
            await source.load(server, version, flush=self.mode is not NewWeights.IN_PLACE)
        except Untouched:
            self._lost = lost
            raise
        self._lost = False

    @asynccontextmanager
    async def _paused(self, server: Server) -> AsyncIterator[None]:
        """Where answers go on afterwards, the server stands still; else it is asked to load when they have ended."""
        if self.mode is NewWeights.WAIT:
            yield
            return
        await server.ask("/pause_generation", {"mode": self.mode.value})
        try:
            yield
        finally:
            await server.ask("/continue_generation", {})


async def put_right(server: Server) -> None:
    """Have a server that ran before go on, where an engine that failed half-way has left it paused or amid weights.

    Raises:
        WorkerError: it cannot.
    """
    with suppress(SlimeError):  # there is no session, as ever; what is wrong otherwise the next call says
        await server.ask("/end_weight_update", {})
    await server.ask("/continue_generation", {})
