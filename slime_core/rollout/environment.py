"""Environment: the reward `environment`: what a sample's generator scored itself, weighed like any other reward.

Example:

    sample.reward = 1.0                             # in a generator: its tests passed
    sample.reward = {"score": 1.0, "steps": 0.4}    # or with parts
    # [reward] use = {format = 0.2, environment = 1.0}
"""

from slime_core.roles import RewardContext
from slime_core.sample import SCORE, Sample, scalar_reward
from slime_core.score import NotApplicable, Score, Verdict

ENVIRONMENT = "environment"
"""Its name."""
NO_SCORE = (
    "environment is the reward that the generator itself gives, and it gave none. Of an agent: the agent returned "
    'None, and a number is expected, or numbers by name, as {"score": 1.0, "steps": 0.4}; or choose a reward that '
    "judges the answer, such as math: a command returns none, and always needs one"
)
"""What to say of a sample that it alone was to score, and could not."""
NO_SCORE_AT_LIMIT = (
    "environment is the reward that the generator itself gives, and it gave none for a sample that was cut off at a "
    "limit of the run. Of an agent: it returned None; return what the sample is worth, as 0.0; or raise the limit: "
    "rollout_max_response_len, rollout_max_turns, or those in the generator's section"
)
"""The same of one that is TRUNCATED."""


class Environment:
    """Implements `slime_core.roles.Reward`."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The generator's own score, its other parts as components."""
        return own_score(sample)


def own_score(sample: Sample) -> Score | NotApplicable:
    """What the generator scored, before the rewards have closed the sample."""
    if sample.reward is None:
        return NotApplicable()
    parts = sample.reward if isinstance(sample.reward, dict) else {}
    return Score(scalar_reward(sample), {name: value for name, value in parts.items() if name != SCORE})
