"""Sample filter: takes single samples of a finished rollout out of training; their rewards still count for their group.

Example:

    class NotTooLong:
        def __call__(self, groups, ctx):
            return [
                Removal(group.id, position, "too_long")
                for group in groups
                for position, sample in enumerate(group.samples)
                if sample.response_length > 4096
            ]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec
from slime_core.roles.group_filter import FilterContext
from slime_core.sample import Group, GroupId


@dataclass(frozen=True, slots=True)
class Removal:
    """One sample that is not trained on: its `remove_sample` is set, and its loss mask counts as zeros."""

    group: GroupId
    """Its group."""
    position: int
    """Its position among the group's samples, from 0."""
    reason: str
    """A short, countable text; becomes `rollout/sample_filter/<reason>`."""


@runtime_checkable
class SampleFilter(Protocol):
    """A pure, quick function of all kept groups of a rollout."""

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Return what is to be removed; samples that are already removed stay so."""
        ...


@dataclass(frozen=True)
class SampleFilterSpec(Spec[SampleFilter]):
    """Offers a sample filter (slime: `--rollout-sample-filter-path`); several run in their order."""

    role: ClassVar[str] = "sample_filter"
    many: ClassVar[bool] = True
