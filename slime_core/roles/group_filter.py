"""Group filter: decides whether a finished group is trained on (dynamic sampling).

Example:

    class NonzeroStd:
        def __call__(self, group, ctx):
            return Keep() if max(group.rewards) > min(group.rewards) else Drop("zero_std")
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec
from slime_core.sample import Group


@dataclass(frozen=True, slots=True)
class Keep:
    """Train on this group."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not train on this group."""

    reason: str
    """A short, countable text; becomes `rollout/dynamic_filter/drop_<reason>`."""


@dataclass(frozen=True, slots=True)
class KeepIfShort:
    """Drop this group unless the rollout would otherwise come up short."""

    reason: str
    """As in `Drop`."""


Decision = Keep | Drop | KeepIfShort


@dataclass(frozen=True, slots=True)
class FilterContext:
    """What a filter may know besides the group."""

    rollout_id: int
    """Number of the rollout, from 0."""


@runtime_checkable
class GroupFilter(Protocol):
    """A pure, quick function of one finished group."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """Return `Keep`, `Drop` or `KeepIfShort`."""
        ...


@dataclass(frozen=True)
class GroupFilterSpec(Spec[GroupFilter]):
    """Offers a group filter."""

    role: ClassVar[str] = "group_filter"
