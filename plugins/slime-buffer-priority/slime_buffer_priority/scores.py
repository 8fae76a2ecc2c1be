"""Scores of a group, as the part of its key that does not change while it is held; the advantage comes on top.

A priority is the product of all scores, each to the power of its weight: (s_1 + eps) ** w_1 * (s_2 + eps) ** w_2 ...
What decays with time is decayed forward instead (Cormode et al. 2009, doi:10.1109/ICDE.2009.65): a factor that halves
with age is the same for all groups but for the moment at which each one came, so newcomers start higher, and no key
ever needs to be changed because time went by.

Example:

    key = fixed_key(group, settings, draws=12, version=12) + advantage_key(0.3, settings)
"""

import math

from slime_buffer_priority.settings import PrioritySettings, ScoreName
from slime_core import Group


def fixed_key(group: Group, settings: PrioritySettings, *, draws: int, version: int) -> float:
    """Base-2 logarithm of all factors of a group's priority but the advantage's.

    Args:
        group: a finished group.
        settings: the buffer's.
        draws: how many draws there were before it came.
        version: weight version of its oldest token.
    """
    key = 0.0
    for name, weight in settings.scores.items():
        if weight == 0 or name is ScoreName.ADVANTAGE:
            continue
        if name is ScoreName.RECENCY:
            key += weight * draws / settings.recency_half_life
        elif name is ScoreName.STALENESS:
            key += weight * version / settings.staleness_half_life
        else:
            key += weight * math.log2(_score(name, group, settings) + settings.epsilon)
    return key


def _score(name: ScoreName, group: Group, settings: PrioritySettings) -> float:
    """A score of 0 to 1."""
    if name is ScoreName.DIVERSITY:
        return len({sample.response for sample in group.samples}) / len(group.samples)
    low, high = settings.reward_range
    rewards = group.rewards
    mean = sum(rewards) / len(rewards) if rewards else low
    share = min(1.0, max(0.0, (mean - low) / (high - low)))
    return share if name is ScoreName.REWARD else 4 * share * (1 - share)
