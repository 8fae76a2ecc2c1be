"""Buffer: holds finished groups between rollout and training, and hands them out with importance weights.

Example:

    buffer.add(finished)
    taken = buffer.sample(64, BufferContext(rollout_id=3, weight_version=3))
    buffer.update(scores)        # after training: for priorities
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Settings, Setup, Spec, Stability
from slime_core.roles.buffer_filter import BufferContext, BufferFilter
from slime_core.sample import Group, GroupId, Json


@dataclass(frozen=True, slots=True)
class Draw:
    """Groups to train on."""

    groups: Sequence[Group]
    """At most as many as were wanted, none twice, all of them held until now."""
    weights: Sequence[float]
    """Importance weight of each group in the loss, finite and 0 or more; 1.0 without priorities."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How often a buffer hands out one group; the core generates by it, and its ledger counts."""

    max_uses: int = 1
    """Most uses of one group; after the last one the buffer no longer holds it."""
    ratio: float = 1.0
    """Mean uses of a group, 1 to `max_uses`: a rollout generates so many groups that uses are at most this many times
    the groups; more only while the buffer cannot fill a batch."""
    max_staleness: int | None = None
    """Weight versions by which a group may lag before the buffer gives it up; None: any number."""

    def __post_init__(self) -> None:
        if not 1 <= self.ratio <= self.max_uses:
            raise ValueError(f"the mean uses of a group are 1 to max_uses = {self.max_uses}, not {self.ratio}")


def _once(settings: Settings) -> Replay:
    return Replay()


@dataclass(frozen=True, slots=True)
class BufferSetup(Setup):
    """What a buffer's factory is given."""

    buffer_filter: BufferFilter
    """The run's filter, for buffers that take one; its answers are checked already."""


@runtime_checkable
class Buffer(Protocol):
    """State between rollout and training; the core calls it from one task, never concurrently."""

    def add(self, groups: Sequence[Group]) -> None:
        """Take finished groups in."""
        ...

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Hand out at most `want` groups."""
        ...

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Learn how training went: the mean absolute advantage of each trained group."""
        ...

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Remove groups that will not be trained again; returns the reason of each.

        Called when a step is done, with the context of the next: what will be too old by then goes now.
        """
        ...

    def state_dict(self) -> dict[str, Json]:
        """Everything needed to continue, as plain JSON, held groups included."""
        ...

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state."""
        ...

    def __len__(self) -> int:
        """Groups that `sample` could still hand out."""
        ...


@dataclass(frozen=True)
class BufferSpec(Spec[Buffer]):
    """Offers a buffer."""

    role: ClassVar[str] = "buffer"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    uses_buffer_filter: bool = False
    """Whether the run's buffer filter has a say; selecting one is refused otherwise."""
    replay: Callable[..., Replay] = _once
    """`replay(settings)`: how often it hands out one group; once, unless it says more."""
