"""The rewards for answers in mathematics: `math`, `deepscaler`, `dapo` and their `boxed_` variants.

Example:

    reward = Answers(MathSettings())
    await reward(sample, ctx)          # Score(1.0) if the last box holds the label
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math import slime
from slime_reward_math.extract import Extracted, extract, gold_text, last_marked, thought_ends
from slime_reward_math.grader import Grade, Outcome, judged, settled
from slime_reward_math.plugin import MathSettings
from slime_reward_math.value.field import warm_up

NO_GOLD = Unscored("no gold answer")
"""Verdict for a row without a gold answer; a score of 0 would count the model as wrong."""


def verdict_of(found: Grade, right: float = 1.0, wrong: float = 0.0) -> Verdict:
    """A grade as a verdict: undecided and timed out answers are unscored; the run's policy decides."""
    if found.outcome is Outcome.TIMEOUT:
        return Unscored("timeout", retryable=True, detail=f"gold {found.gold[:200]!r}")
    if found.outcome is Outcome.UNDECIDED:
        if found.reason == "no gold answer":
            return NO_GOLD
        return Unscored("undecided", detail=f"{found.reason}: gold {found.gold[:200]!r}, answer {found.answer!r:.200}")
    components = {"correct": float(found.correct), "answered": float(found.answer is not None)}
    return Score(right if found.correct else wrong, components)


def boxed(sample: Sample) -> str:
    """The last box alone, which the `boxed_` variant of a reward reads; empty without one."""
    return extract(sample.response).text or ""


def golds(label: Json) -> list[Json]:
    """The gold answers of a label: each item of a list, or the label itself; nothing for None and empty texts.

    A text that is a JSON list of texts, as `["72"]`, is that list: parquet files of verl keep labels so.
    """
    if isinstance(label, str) and label.startswith('["') and label.endswith('"]'):
        with suppress(ValueError):
            label = json.loads(label)
    several = label if isinstance(label, list) else [label]
    return [each for each in several if each is not None and not (isinstance(each, str) and not each.strip())]


LIMIT_S = 0.002
"""Seconds of grading in one turn of the event loop; the verdict that exceeds them is the turn's last."""
WOKEN = 40
"""Maximum number of waiting calls that a turn resumes, about as many as the time limit allows."""


class Turns:
    """Measures the seconds spent in a turn of the event loop; the body must not await."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent = self._began = 0.0
        self._is_due = False

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._spent, self._is_due = loop, 0.0, False
            self._waiting.clear()
        while self._spent >= LIMIT_S:
            place = loop.create_future()
            self._waiting.append(place)
            await place
        self._renew_later(loop)
        self._began = time.perf_counter()

    async def __aexit__(self, *raised: object) -> None:
        self._spent += time.perf_counter() - self._began

    def _renew_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a new turn, after the loop has run every callback that was ready when the last one began."""
        self._spent, self._is_due = 0.0, False
        for _ in range(min(WOKEN, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
        if self._waiting:
            self._renew_later(loop)


RESPONSE_MARKER = "###Response"
"""The end of thought for `deepscaler` without a `</think>`."""


Finder = Callable[[str, MathSettings], Extracted]
BOXED = r"\boxed{{}}"
"""How most responses give an answer."""


class Answers:
    """Grades what a finder extracts from a response."""

    def __init__(
        self, settings: MathSettings, find: Finder, strict: slime.Strict, form: str = BOXED, wrong: float = 0.0
    ) -> None:
        """Take the settings; `form` is a template of a response, with `{}` for the answer."""
        self._settings, self._find, self._strict, self._wrong = settings, find, strict, wrong
        self._form = form
        # Import before the run begins: on the event loop it would delay every task.
        warm_up()
        self._turns = Turns()

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Grade a sample; on the event loop, because a verdict takes 0.1 ms and never more than its bounds allow."""
        if sample.label is None:
            return NO_GOLD
        async with self._turns:
            if self._settings.strict_slime:
                right = self._strict(sample.response, sample.label)
                return Score(1.0 if right else self._wrong, {"correct": float(right)})
            grade = self._graded(sample.response, sample.label)
        return NO_GOLD if grade is None else verdict_of(grade, wrong=self._wrong)

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
        # With several golds, the first match decides, else the first undecided one.
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
