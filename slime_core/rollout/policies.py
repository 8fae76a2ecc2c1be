"""Policies: when groups are generated, by the name that a run file gives it.

Example:

    scheduler = make_scheduler("continuous", parts, batch=64, rollouts=1000)
"""

from slime_core.rollout.scheduler import Parts, Scheduler
from slime_core.rollout.stream import Room, Stream
from slime_core.rollout.waves import OneAhead, Waves

POLICIES = ("sync", "async", "continuous")
"""Names of `rollout_policy`."""


def make_scheduler(policy: str, parts: Parts, batch: int, rollouts: int) -> Scheduler:
    """The scheduler of a policy, with or without partial rollouts, as `parts.policy` says.

    Args:
        policy: one of `POLICIES`.
        parts: what it works with.
        batch: fresh groups that a step needs.
        rollouts: how many the run has: nothing is drawn for a later one.
    """
    if policy == "continuous":
        return Stream(parts, Room(batch, rollouts))
    if parts.policy.partial_rollout:
        return Stream(parts, Room(batch, rollouts, parts.policy.over_sampling_batch_size))
    return OneAhead(parts) if policy == "async" else Waves(parts)
