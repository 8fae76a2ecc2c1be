"""ServedWeights: switches a server's weights. ServerMemory: releases a server's memory.

A switch changes all weights or none. SGLang's scheduler crashes if memory is released during a request or twice, so
`ServerMemory` prevents both.

Example:

    weights = ServedWeights(calls, Folder(model), NewWeights.RETRACT)
    await weights.switch(server, publications.prepare(channel, 3), 3)
    weights.version                                 # 3
    await ServerMemory(calls, weights).release(server, frozenset({MemoryTag.KV_CACHE}))    # waits for running requests
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

INITIAL_VERSION = "default"  # SGLang's version name for the weights that a server was started with


class WeightsUnchanged(WorkerError):
    """Loading weights failed; the server still serves the previous weights."""


class ServerHangs(WorkerError):
    """Loading weights failed, and the server hangs in a collective operation: it must be replaced."""


class NewWeights(enum.StrEnum):
    """How new weights affect running requests."""

    RETRACT = "retract"
    """Requests return to the queue, and continue with a KV cache recomputed with the new weights."""
    IN_PLACE = "in_place"  # Requests continue with the KV cache of the old weights
    WAIT = "wait"  # The weights wait until all requests have ended


class Source(Protocol):
    """Where a server gets weights from."""

    is_reloadable: ClassVar[bool]  # Whether the source can be loaded again

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        """Load the weights into the server, under a version name; `flush` also empties its cache.

        Raises:
            WeightsUnchanged: loading failed; the previous weights are still served.
            ServerHangs: loading failed, and the server hangs.
            ModelError, WorkerError: loading failed; some weights may have changed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A model directory that the server can read. It can be loaded again at any time."""

    path: Path
    is_reloadable: ClassVar[bool] = True

    async def load(self, server: Server, version: str, *, flush: bool) -> None:
        body: Table = {"model_path": str(self.path.absolute()), "weight_version": version, "flush_cache": flush}
        await server.ask("/update_weights_from_disk", body)


class ServedWeights:
    """The source and version of the weights on a server."""

    def __init__(self, calls: Calls, model: Source, new_weights: NewWeights) -> None:
        self._calls = calls
        self.mode = new_weights
        self._served: tuple[Source, str] = (model, INITIAL_VERSION)
        self._switching = asyncio.Lock()
        self._lost = False

    @property
    def version(self) -> int:
        """Version of the served weights; -1 before the first load."""
        return -1 if self._served[1] == INITIAL_VERSION else int(self._served[1])

    @property
    def is_switching(self) -> bool:
        return self._switching.locked()

    @property
    def are_lost(self) -> bool:
        """Whether the server released the weights' memory and has not loaded weights since."""
        return self._lost

    @property
    def is_reloadable(self) -> bool:
        return self._served[0].is_reloadable

    def with_cache_key(self, body: Table) -> Table:
        """A request's body with a key that keeps it from using the prefix cache of older weights."""
        return {**body, "extra_key": self._served[1]} if self.mode is NewWeights.IN_PLACE else body

    def mark_lost(self) -> None:
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
        cancelled = asyncio.Event()
        switch = self._calls.in_background(self._switch(server, source, str(version), cancelled))
        try:
            await asyncio.shield(switch)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def _switch(self, server: Server, source: Source, version: str, cancelled: asyncio.Event) -> None:
        """Switch while generation is paused. On failure restore the previous weights, which SGLang does not do."""
        async with self._switching, self._calls.exclusive(), self._paused(server):
            try:
                await self._load(server, source, version)
            except (WeightsUnchanged, ServerHangs):
                raise
            except SlimeError as error:
                try:
                    await self._load(server, *self._served)
                except SlimeError as worse:
                    raise WorkerError(f"{error}; the previous weights cannot be reloaded either: {worse}") from error
                raise
            if cancelled.is_set():
                await self._load(server, *self._served)
            else:
                self._served = (source, version)

    async def _load(self, server: Server, source: Source, version: str) -> None:
        lost, self._lost = self._lost, True
        try:
            await source.load(server, version, flush=self.mode is not NewWeights.IN_PLACE)
        except WeightsUnchanged:
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


async def resume_server(server: Server) -> None:
    """Resume an external server that a failed engine left paused or in a weight update."""
    with suppress(SlimeError):  # usually no update is open; the next call raises any other error
        await server.ask("/end_weight_update", {})
    await server.ask("/continue_generation", {})


class ServerMemory:
    """Tracks the memory that one server has released."""

    def __init__(self, calls: Calls, weights: ServedWeights) -> None:
        self._calls, self._weights = calls, weights
        self._released: MemoryTags = frozenset()

    async def release(self, server: Server, tags: MemoryTags) -> None:
        """Release this memory after running requests have ended. Keeps weights that could not be reloaded."""
        async with self._calls.exclusive():
            kept = frozenset() if self._weights.is_reloadable else frozenset({MemoryTag.WEIGHTS})
            if not (more := tags - self._released - kept):
                return
            await self._calls.wait_idle()
            # Finished requests may still be in the scheduler's batch. A pause makes the scheduler idle.
            await server.ask("/pause_generation", {"mode": "retract"})
            try:
                await server.ask("/release_memory_occupation", {"tags": _tag_names(more)})
            finally:
                await server.ask("/continue_generation", {})
            self._released |= more
            if MemoryTag.WEIGHTS in more:
                self._weights.mark_lost()

    async def resume(self, server: Server, tags: MemoryTags) -> None:
        if back := tags & self._released:
            await server.ask("/resume_memory_occupation", {"tags": _tag_names(back)})
            self._released -= back


def _tag_names(tags: MemoryTags) -> list[Json]:
    return list[Json](sorted(tag.value for tag in tags))
