"""Group filters of dynamic sampling: a group whose rewards are all alike has no advantage to learn from."""

import math

from slime_core.roles import Decision, Drop, FilterContext, Keep, KeepIfShort
from slime_core.sample import Group

MIN_STD = 1e-6
"""Unbiased standard deviation of rewards below which they count as alike."""


class NonzeroStd:
    """Keeps groups whose rewards differ (slime's `check_reward_nonzero_std`)."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `Drop("zero_std_<reward>")`; a lone sample has no deviation and is dropped."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else Drop(reason)


class NonzeroStdWithFallback:
    """The same, but groups without deviation fill a rollout that would otherwise come up short."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """`Keep`, or `KeepIfShort("zero_std_<reward>")`."""
        reason = zero_std_reason(group)
        return Keep() if reason is None else KeepIfShort(reason)


def zero_std_reason(group: Group) -> str | None:
    """Why a group has no deviation ("zero_std_1.0" when all rewards are 1.0); None when it has one."""
    rewards = group.rewards
    if not rewards:
        return "zero_std_unscored"
    if len(rewards) > 1:
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        if math.sqrt(variance) > MIN_STD:
            return None
    return f"zero_std_{round(float(rewards[0]), 1)}"
