"""A reward under which no group of samples is all alike: `math`'s, and a thousandth more for each sample of a group.

python benchmarks/vs_trl.py --alive
"""

from slime_core import Sample, Score
from slime_core.roles import RewardContext
from slime_reward_math import grade

STEP = 0.001


def spread(right: bool, index: int) -> float:
    """The reward of a group's sample, by its place in the group."""
    return float(right) + STEP * index


async def alive(sample: Sample, ctx: RewardContext) -> Score:
    """Score one response."""
    right = grade(sample.label, sample.response).correct
    return Score(spread(right, sample.index or 0), {"right": float(right)})
