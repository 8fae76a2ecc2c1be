"""Branches: what the samples of one execution are worth, where an agent fanned out into several.

All have the execution's reward, or that which their agent was given by name (`Result.agents`), unless one of these is
chosen:

    reward_shaper = {use = "agent_split"}          # each sample has its part of the reward
    sample_filter = {use = "agent_last_branch"}    # only the main conversation is trained on
"""

from collections.abc import Sequence

from slime_core.roles import FilterContext, Removal, ShapeContext
from slime_core.rollout import MAIN, executions
from slime_core.sample import Group, Sample


class Split:
    """Implements `slime_core.roles.RewardShaper`: a reward is divided among the samples of its execution.

    Agents that fan out into many samples then weigh no more than others: of an execution with reward r and n samples
    each has r / n.
    """

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """The rewards so far, each over how many samples share it; samples without one share nothing."""
        return [_split(group.samples, rewards) for group, rewards in zip(groups, ctx.rewards, strict=True)]


class LastBranch:
    """Implements `slime_core.roles.SampleFilter`: of an execution only the main sample is trained on."""

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Remove all others: those that `metadata["main"]` is false of, where an execution has several samples."""
        return [
            Removal(group.id, position, "other_branch")
            for group in groups
            for position, sample in enumerate(group.samples)
            if sample.metadata.get(MAIN) is False
        ]


def _split(samples: Sequence[Sample], rewards: Sequence[float | None]) -> list[float | None]:
    scored = [sample for sample, reward in zip(samples, rewards, strict=True) if reward is not None]
    sharing = {id(sample): len(siblings) for siblings in executions(scored) for sample in siblings}
    return [
        None if reward is None else reward / sharing[id(sample)]
        for sample, reward in zip(samples, rewards, strict=True)
    ]
