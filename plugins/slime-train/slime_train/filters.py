"""Filters of groups and samples for dynamic sampling. No torch: they run in the driver."""

import math
from collections.abc import Sequence

from slime_core.roles import Decision, Drop, FilterContext, Keep, KeepIfShort, Removal
from slime_core.rollout import executions
from slime_core.sample import Group, Status

MIN_STD = 1e-6
"""Rewards with a smaller unbiased standard deviation count as equal."""


def nonzero_std(group: Group, ctx: FilterContext) -> Decision:
    """Keep groups whose rewards differ (slime's `check_reward_nonzero_std`).

    Returns `Drop("zero_std_<reward>")` for other groups, also for a group of one sample.
    """
    reason = zero_std_reason(group)
    return Keep() if reason is None else Drop(reason)


def nonzero_std_with_fallback(group: Group, ctx: FilterContext) -> Decision:
    """Keep groups whose rewards differ, and other groups only to fill a rollout that lacks groups."""
    reason = zero_std_reason(group)
    return Keep() if reason is None else KeepIfShort(reason)


def zero_std_reason(group: Group) -> str | None:
    """Return the reason to drop a group, "zero_std_1.0" if all rewards are 1.0; None if they differ."""
    rewards = group.rewards
    if not rewards:
        return "zero_std_unscored"
    if len(rewards) > 1:
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        if math.sqrt(variance) > MIN_STD:
            return None
    return f"zero_std_{round(float(rewards[0]), 1)}"


def truncated(groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
    """Leave truncated responses out of the loss: DAPO's overlong filtering (Yu et al. 2025, arXiv:2503.14476, 3.4).

    Their rewards still count in the group's normalisation, as with TRL's `mask_truncated_completions`. An execution
    that fanned out is one response: if one of its samples was truncated, all are left out.
    """
    removals = list[Removal]()
    for group in groups:
        cut = [run for run in executions(group.samples) if any(each.status is Status.TRUNCATED for each in run)]
        ids = {id(sample) for run in cut for sample in run}
        for at, each in enumerate(group.samples):
            if id(each) in ids and not each.remove_sample:
                removals.append(Removal(group.id, at, "truncated"))
    return removals
