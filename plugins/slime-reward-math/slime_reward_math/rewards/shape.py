r"""The reward `format`: whether a response has the form that the other rewards can read.

Example:

    shape_reason("<think>2+2</think> \\boxed{4}", FormatSettings())      # "" : nothing is wrong
"""

from slime_core import Sample, Score, Verdict
from slime_core.roles import RewardContext
from slime_reward_math.context import TAKEN_BACK
from slime_reward_math.extract import END_OF_THOUGHT, START_OF_THOUGHT, extract
from slime_reward_math.rewards.settings import FormatSettings


class Shape:
    """Looks at the form alone."""

    def __init__(self, settings: FormatSettings) -> None:
        self._settings = settings

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 1 for a well-formed response, else 0."""
        return Score(float(not shape_reason(sample.response, self._settings)))


def shape_reason(response: str, settings: FormatSettings) -> str:
    """What is wrong with a response's form; empty if nothing is."""
    starts, ends = response.count(START_OF_THOUGHT), response.count(END_OF_THOUGHT)
    if settings.think == "forbidden" and starts + ends:
        return "thinking where none is wanted"
    if settings.think == "required" and not ends:
        return "no end of thought"
    if ends > 1 or starts > ends:
        return "thinking that does not end, or ends twice"
    if starts and response[: response.find(START_OF_THOUGHT)].strip():
        return "text before the thinking"
    if not response.rpartition(END_OF_THOUGHT)[2].strip():
        return "nothing after the thinking"
    found = extract(response)
    # What a box says is not this reward's to judge.
    return found.reason if settings.box and found.text is None and found.reason != TAKEN_BACK else ""
