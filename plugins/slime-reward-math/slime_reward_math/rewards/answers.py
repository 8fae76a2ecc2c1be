"""The rewards for answers in mathematics: `math`, `deepscaler`, `dapo` and their `boxed_` variants.

Example:

    reward = Answers(MathSettings())
    await reward(sample, ctx)          # Score(1.0) if the last box holds the label
"""

import asyncio
from collections.abc import Callable

from slime_core import Sample, Score, Verdict
from slime_core.errors import ConfigError
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math import slime
from slime_reward_math.extract import Extracted, extract, last_marked, thought_ends
from slime_reward_math.gold import gold_text
from slime_reward_math.grader import judged, settled
from slime_reward_math.rewards.settings import MathSettings
from slime_reward_math.rewards.turns import Turns
from slime_reward_math.rewards.verdicts import NO_GOLD, golds, verdict_of
from slime_reward_math.value.fields import warm_up
from slime_reward_math.verdict import Grade, Outcome

RESPONSE_MARKER = "###Response"
"""What `deepscaler` takes for the end of thought where there is no `</think>`."""


def _settler(settings: MathSettings) -> Callable[[Grade], Grade]:
    from slime_reward_math.symbolic import Settler

    try:
        return Settler(timeout_s=settings.symbolic_timeout_s, memory_mb=settings.symbolic_memory_mb)
    except ModuleNotFoundError as error:
        raise ConfigError(f"symbolic = true: {error}") from error


Finder = Callable[[str, MathSettings], Extracted]
BOXED = r"\boxed{{}}"
"""How most responses give an answer."""


class Answers:
    """Grades what a finder extracts from a response."""

    def __init__(
        self, settings: MathSettings, find: Finder, strict: slime.Strict, form: str = BOXED, wrong: float = 0.0
    ) -> None:
        """Grade as the settings say; `form` is how a response gives its answer, which stands for `{}`."""
        self._settings, self._find, self._strict, self._wrong = settings, find, strict, wrong
        self._form = form
        # Here, before anything runs: on the event loop everybody would wait for the import.
        warm_up()
        self._turns = Turns()
        self._settle = _settler(settings) if settings.symbolic else None

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Grade a sample; on the event loop, because a verdict takes 0.1 ms and never more than its bounds allow."""
        if sample.label is None:
            return NO_GOLD
        async with self._turns:
            if self._settings.strict_slime:
                right = self._strict(sample.response, sample.label)
                return Score(1.0 if right else self._wrong, {"correct": float(right)})
            grade = self._graded(sample.response, sample.label)
        if grade is None:
            return NO_GOLD
        if grade.outcome is Outcome.UNDECIDED and self._settle is not None:
            # Algebra takes long, and in a thread of its own: nobody else waits for it.
            grade = await asyncio.to_thread(self._settle, grade)
        return verdict_of(grade, wrong=self._wrong)

    def check_label(self, sample: Sample) -> str | None:
        """Grade the gold answer as a response that gives it; see `slime_core.roles.ChecksLabels`."""
        given = [self._form.replace("{}", text) for text in map(gold_text, golds(sample.label)) if text]
        if not given:
            wants = " in it (a number, a formula, a box or at most 15 words); is label_key the right column?"
            return NO_GOLD.reason + wants * isinstance(sample.label, str)
        if self._settings.strict_slime:
            if self._strict is slime.never or any(self._strict(each, sample.label) for each in given):
                return None
            return "a response that gives it earns nothing with strict_slime"
        grades = [self._graded(each, sample.label) for each in given]
        if any(grade is not None and grade.correct for grade in grades):
            return None
        return "a response that gives it does not earn full marks"

    def _graded(self, response: str, label: Json) -> Grade | None:
        expected = [text for text in map(gold_text, golds(label)) if text]
        if not expected:
            return None
        found = settled(self._find(response, self._settings))
        grades = [judged(gold, found, deadline_s=self._settings.deadline_s) for gold in expected]
        # Of several golds the first that is matched decides, else the first that could not be decided.
        best = next((each for each in grades if each.correct), None)
        undecided = next((each for each in grades if each.outcome is not Outcome.WRONG), grades[0])
        return best or undecided


def find_box(response: str, settings: MathSettings) -> Extracted:
    """The last box after the last `</think>`."""
    return extract(response, settings.answer_phrases)


def find_response(response: str, settings: MathSettings) -> Extracted:
    """The last box after the last `</think>`, or after the last `###Response`; of all of it without either."""
    if thought_ends(response) == 0 and RESPONSE_MARKER in response:
        response = response.rpartition(RESPONSE_MARKER)[2]
    return extract(response, settings.answer_phrases)


def find_line(response: str, settings: MathSettings) -> Extracted:
    """The last line that begins its answer with `Answer:`; its box, if it holds one."""
    found = last_marked(response)
    return extract(found.text) if found.text is not None and "\\boxed" in found.text else found


def math(settings: MathSettings) -> Answers:
    """Slime's `math`."""
    return Answers(settings, find_box, slime.math)


def deepscaler(settings: MathSettings) -> Answers:
    """Slime's `deepscaler`."""
    return Answers(settings, find_response, slime.deepscaler, f"</think>{BOXED}")


def dapo(settings: MathSettings) -> Answers:
    """Slime's `dapo`: 1 or -1."""
    return Answers(settings, find_line, slime.dapo, "Answer: {}", wrong=-1.0)


def boxed_math(settings: MathSettings) -> Answers:
    """`math` of the box: what `math` does; slime's own looks for a box within the box."""
    return Answers(settings, find_box, slime.never)


def boxed_deepscaler(settings: MathSettings) -> Answers:
    """`deepscaler` of the box."""
    return Answers(settings, find_response, slime.never)


def boxed_dapo(settings: MathSettings) -> Answers:
    """`dapo` of the box: the box is the answer; slime's own looks for `Answer:` within the box."""
    form = r"\boxed{Answer: {}}" if settings.strict_slime else BOXED
    return Answers(settings, find_box, slime.boxed_dapo, form, wrong=-1.0)
