"""Occupation: which of its memory a server has given up, while ranks train on the same devices.

SGLang ends its scheduler when it is asked for memory amid a request, or twice for the same: neither is asked of it.

Example:

    occupation = Occupation(calls, weights)
    await occupation.release(server, frozenset({MemoryTag.KV_CACHE}))       # after what is under way
    await occupation.resume(server, frozenset({MemoryTag.KV_CACHE}))
"""

from slime_core.roles import MemoryTag, MemoryTags
from slime_core.sample import Json
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.server import Server
from slime_engine_sglang.weights import ServedWeights


class Occupation:
    """Tracks the memory that one server has given up: at first none."""

    def __init__(self, calls: Calls, weights: ServedWeights) -> None:
        """Nothing is given up yet; calls and weights are the server's."""
        self._calls, self._weights = calls, weights
        self._out: MemoryTags = frozenset()

    async def release(self, server: Server, tags: MemoryTags) -> None:
        """Give this memory up, what is under way having ended; but keep weights that could not be loaded again.

        Raises:
            WorkerError: the server did not.
        """
        async with self._calls.held():
            kept = frozenset() if self._weights.can_be_lost else frozenset({MemoryTag.WEIGHTS})
            if not (more := tags - self._out - kept):
                return
            await self._calls.drained()
            # What has been answered may still be in the scheduler's batch, for which a pause makes it idle.
            await server.ask("/pause_generation", {"mode": "retract"})
            try:
                await server.ask("/release_memory_occupation", {"tags": _names(more)})
            finally:
                await server.ask("/continue_generation", {})
            self._out |= more
            if MemoryTag.WEIGHTS in more:
                self._weights.lose()

    async def resume(self, server: Server, tags: MemoryTags) -> None:
        """Take it back.

        Raises:
            WorkerError: the server could not.
        """
        if back := tags & self._out:
            await server.ask("/resume_memory_occupation", {"tags": _names(back)})
            self._out -= back


def _names(tags: MemoryTags) -> list[Json]:
    return list[Json](sorted(tag.value for tag in tags))
