"""What slime-core finds through the entry point: the reward `math`."""

from collections.abc import Iterable

from slime_core import RewardContext, RewardSpec, Sample, Score, Unscored, Verdict, hookimpl
from slime_reward_math.grader import Outcome, grade

SLIME_API = "1"


async def math(sample: Sample, ctx: RewardContext) -> Verdict:
    """1.0 if the response's last box holds `sample.label`, else 0.0."""
    outcome = grade(sample.label, sample.response).outcome
    if outcome is Outcome.NO_GOLD:
        return Unscored("no gold answer")
    answered = float(outcome is not Outcome.NO_ANSWER)
    return Score(float(outcome is Outcome.CORRECT), {"answered": answered})


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """The rewards of this plugin."""
    yield RewardSpec.from_function("math", math, summary="1 when the last boxed answer equals the label, else 0")
