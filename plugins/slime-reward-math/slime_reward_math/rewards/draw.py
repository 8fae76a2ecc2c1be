"""The reward `random`: 0 or 1 by the sample's seed, a baseline that no policy can learn.

Example:

    await Draw()(sample, ctx)      # Score(0.0) or Score(1.0), the same for the same seed
"""

import random

from slime_core import Sample, Score, Verdict
from slime_core.roles import RewardContext


class Draw:
    """Draws from the seed alone."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 0 or 1 with equal probability."""
        return Score(float(random.Random(ctx.seed).getrandbits(1)))
