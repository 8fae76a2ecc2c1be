"""Buffer filter: a pure choice of which held groups to train on next, and which to drop.

Example:

    class NewestFirst:
        def select(self, groups, want, ctx):
            newest = sorted(range(len(groups)), key=lambda i: groups[i].id.draw, reverse=True)
            return Selection(take=newest[:want])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec
from slime_core.sample import Group


@dataclass(frozen=True, slots=True)
class BufferContext:
    """When the buffer is asked."""

    rollout_id: int
    """Number of the rollout, from 0."""
    weight_version: int
    """Version of the weights about to be trained; minus a group's oldest version, that is its staleness."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions in the sequence that the filter was given."""

    take: Sequence[int]
    """Train on these now, in this order; at most `want`, no repeats."""
    drop: Sequence[int] = ()
    """Never train on these; disjoint from `take`."""


@runtime_checkable
class BufferFilter(Protocol):
    """A pure function of what is held; the core checks the answer and does the removing."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """Choose at most `want` of `groups`."""
        ...


@dataclass(frozen=True)
class BufferFilterSpec(Spec[BufferFilter]):
    """Offers a buffer filter."""

    role: ClassVar[str] = "buffer_filter"
