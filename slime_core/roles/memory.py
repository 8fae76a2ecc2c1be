"""Memory: what an engine or a rank can give up while the other works on the same devices, and take back unchanged.

Example:

    await engine.release(frozenset({MemoryTag.KV_CACHE}))        # nothing is under way
    await engine.resume(frozenset({MemoryTag.KV_CACHE}))         # and every log-prob is what it was
"""

import enum
from typing import Protocol, TypeAlias, runtime_checkable


class MemoryTag(enum.Enum):
    """A kind of memory."""

    WEIGHTS = "weights"
    """The model's."""
    KV_CACHE = "kv_cache"
    """Keys and values of texts; what they hold may be lost."""
    CUDA_GRAPH = "cuda_graph"
    """Captured graphs."""
    GRADIENT = "gradient"
    """What a backward pass adds to."""
    OPTIMIZER = "optimizer"
    """Moments and master weights."""


MemoryTags: TypeAlias = frozenset[MemoryTag]
"""Some kinds."""


@runtime_checkable
class ReleasesMemory(Protocol):
    """What an engine has that can give memory up; its spec says which, `EngineSpec.releases`."""

    async def release(self, tags: MemoryTags) -> None:
        """Give this memory up, what is under way having ended; again is not an error."""
        ...

    async def resume(self, tags: MemoryTags) -> None:
        """Take it back: what is generated is what it would have been; again is not an error.

        Weights need not be those that were given up where the next call is `load_weights`.
        """
        ...


@runtime_checkable
class RankReleasesMemory(Protocol):
    """What a trainer's rank has that can give memory up; its spec says which, `TrainerSpec.releases`."""

    def release(self, tags: MemoryTags) -> None:
        """Give this memory up; called on all ranks together, again is not an error."""
        ...

    def resume(self, tags: MemoryTags) -> None:
        """Take it back: the next step is what it would have been; again is not an error."""
        ...
