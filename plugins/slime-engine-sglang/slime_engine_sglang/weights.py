"""ServedWeights: switches a server's weights. Occupation: releases a server's memory.

A switch changes all weights or none. SGLang's scheduler crashes if memory is released during a request or twice, so
`Occupation` prevents both.

Example:

    weights = ServedWeights(calls, Folder(model), NewWeights.RETRACT)
    await weights.switch(server, publications.prepare(channel, 3), 3)
    weights.version                                 # 3
    await Occupation(calls, weights).release(server, frozenset({MemoryTag.KV_CACHE}))       # waits for running requests
"""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import MemoryTag, MemoryTags
from slime_core.sample import Json
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.server import Server, Table

AS_STARTED = "default"  # SGLang's version name for the weights that a server was started with


class Untouched(WorkerError):
    """Loading weights failed; the server still serves the previous weights."""


class Stuck(WorkerError):
    """Loading weights failed, and the server hangs in a collective operation: it must be replaced."""


class NewWeights(enum.StrEnum):
    """How new weights affect running requests."""

    RETRACT = "retract"
    """Requests return to the queue, and continue with a KV cache recomputed with the new weights."""
    IN_PLACE = "in_place"  # Requests continue with the KV cache of the old weights
    WAIT = "wait"  # The weights wait until all requests have ended


class Source(Protocol):
    """Where a server gets weights from."""

    lasts: ClassVar[bool]  # Whether the source can be loaded again

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        """Load the weights into the server, under a version name; `flush` also empties its cache.

        Raises:
            Untouched: loading failed; the previous weights are still served.
            Stuck: loading failed, and the server hangs.
            ModelError, WorkerError: loading failed; some weights may have changed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A model directory that the server can read. It can be loaded again at any time."""

    path: Path
    lasts: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        body: Table = {"model_path": str(self.path.absolute()), "weight_version": version, "flush_cache": flush}
        await server.ask("/update_weights_from_disk", body)


class ServedWeights:
    """The source and version of the weights on a server."""

    def __init__(self, calls: Calls, model: Source, new_weights: NewWeights) -> None:
        self._calls = calls
        self.mode = new_weights
        self._served: tuple[Source, str] = (model, AS_STARTED)
        self._switching = asyncio.Lock()
        self._lost = False

    @property
    def version(self) -> int:
        """Version of the served weights; -1 before the first load."""
        return -1 if self._served[1] == AS_STARTED else int(self._served[1])

    @property
    def is_switching(self) -> bool:
        return self._switching.locked()

    @property
    def are_lost(self) -> bool:
        """Whether the server released the weights' memory and has not loaded weights since."""
        return self._lost

    @property
    def can_be_lost(self) -> bool:
        return self._served[0].lasts

    def marked(self, body: Table) -> Table:
        """A request's body with a key that keeps it from using the prefix cache of older weights."""
        return {**body, "extra_key": self._served[1]} if self.mode is NewWeights.IN_PLACE else body

    def lose(self) -> None:
        self._lost = True

    async def restore(self, server: Server) -> None:
        """Reload the served weights if they are lost."""
        if not self._lost:
            return
        async with self._switching:
            if self._lost:
                await self._load(server, *self._served)

    async def switch(self, server: Server, source: Source, version: int) -> None:
        """Load other weights. After a failure or cancellation, reload the previous weights."""
        given_up = asyncio.Event()
        switch = self._calls.behind(self._switched(server, source, str(version), given_up))
        try:
            await asyncio.shield(switch)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def _switched(self, server: Server, source: Source, version: str, given_up: asyncio.Event) -> None:
        """Switch while generation is paused. On failure restore the previous weights, which SGLang does not do."""
        async with self._switching, self._calls.held(), self._paused(server):
            try:
                await self._load(server, source, version)
            except (Untouched, Stuck):
                raise
            except SlimeError as error:
                try:
                    await self._load(server, *self._served)
                except SlimeError as worse:
                    raise WorkerError(f"{error}; the previous weights cannot be reloaded either: {worse}") from error
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
        """Pause generation during a load, except in mode `wait`, where no request is running."""
        if self.mode is NewWeights.WAIT:
            yield
            return
        await server.ask("/pause_generation", {"mode": self.mode.value})
        try:
            yield
        finally:
            await server.ask("/continue_generation", {})


async def put_right(server: Server) -> None:
    """Resume an external server that a failed engine left paused or in a weight update."""
    with suppress(SlimeError):  # usually no update is open; the next call raises any other error
        await server.ask("/end_weight_update", {})
    await server.ask("/continue_generation", {})


class Occupation:
    """Tracks the memory that one server has released."""

    def __init__(self, calls: Calls, weights: ServedWeights) -> None:
        self._calls, self._weights = calls, weights
        self._out: MemoryTags = frozenset()

    async def release(self, server: Server, tags: MemoryTags) -> None:
        """Release this memory after running requests have ended. Keeps weights that could not be reloaded."""
        async with self._calls.held():
            kept = frozenset() if self._weights.can_be_lost else frozenset({MemoryTag.WEIGHTS})
            if not (more := tags - self._out - kept):
                return
            await self._calls.drained()
            # Finished requests may still be in the scheduler's batch. A pause makes the scheduler idle.
            await server.ask("/pause_generation", {"mode": "retract"})
            try:
                await server.ask("/release_memory_occupation", {"tags": _names(more)})
            finally:
                await server.ask("/continue_generation", {})
            self._out |= more
            if MemoryTag.WEIGHTS in more:
                self._weights.lose()

    async def resume(self, server: Server, tags: MemoryTags) -> None:
        if back := tags & self._out:
            await server.ask("/resume_memory_occupation", {"tags": _names(back)})
            self._out -= back


def _names(tags: MemoryTags) -> list[Json]:
    return list[Json](sorted(tag.value for tag in tags))
