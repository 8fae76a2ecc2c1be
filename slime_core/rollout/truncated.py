"""Truncated: a sample filter that leaves out of training what a budget cut off.

Example:

    Truncated()(groups, FilterContext(rollout_id=3))        # [Removal(group.id, 2, "truncated"), ...]
"""

from collections.abc import Sequence

from slime_core.roles import FilterContext, Removal
from slime_core.rollout.executions import executions
from slime_core.sample import Group, Status


class Truncated:
    """DAPO's overlong filtering (Yu et al. 2025, arXiv:2503.14476, section 3.4; TRL: `mask_truncated_completions`).

    The reward of a response that was cut off says little of what it had written so far, so that none of its tokens is
    trained on; it stays one of its group's rewards, as in TRL: the others are as good as they were beside it. An
    execution that fanned out is one response: where one of its samples was cut off, all are left out. Denominators
    count what is left (`token_weights`).
    """

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Every sample of an execution with a `TRUNCATED` one; those that are removed already are not named again."""
        return [Removal(group.id, position, "truncated") for group in groups for position in _cut_off(group)]


def _cut_off(group: Group) -> list[int]:
    """Positions of the samples whose execution was cut off, and that are still trained on."""
    those = {
        id(sample)
        for siblings in executions(group.samples)
        if any(sample.status is Status.TRUNCATED for sample in siblings)
        for sample in siblings
    }
    return [at for at, each in enumerate(group.samples) if id(each) in those and not each.remove_sample]
