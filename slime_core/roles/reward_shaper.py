"""Reward shaper: changes the rewards of the groups that are about to be trained on, before the advantage estimator.

The raw reward stays in the sample, for metrics and for the group filter.

Example:

    class Overlong:
        def __call__(self, groups, ctx):
            return [[self.shaped(sample) for sample in group.samples] for group in groups]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec, Stability
from slime_core.sample import Group


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """What a shaper or a batch transform may know besides the groups."""

    rollout_id: int
    """Number of the rollout that trains on them, from 0."""
    rewards: Sequence[Sequence[float | None]]
    """The rewards so far, a row a group, a number a sample, None where it has none: raw, or from the shaper before."""


@runtime_checkable
class RewardShaper(Protocol):
    """A pure function of the groups of one rollout's training."""

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """Return the rewards in the form of `ctx.rewards`: finite where there is one, None where there is none."""
        ...


@dataclass(frozen=True)
class RewardShaperSpec(Spec[RewardShaper]):
    """Offers a reward shaper (slime: `--custom-reward-post-process-path`); several run one after another."""

    role: ClassVar[str] = "reward_shaper"
    many: ClassVar[bool] = True
    stability: ClassVar[Stability] = Stability.PROVISIONAL
