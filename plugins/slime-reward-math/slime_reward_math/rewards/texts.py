r"""The rewards `f1` (words shared with the gold answer), `format` (the form alone) and `random`.

Example:

    f1("the brown fox", "a quick brown fox")      # 0.8
    shape_reason("<think>2+2</think> \\boxed{4}", FormatSettings())      # "" : nothing is wrong
"""

import random
import re
import string
import unicodedata
from collections import Counter

from slime_core import Sample, Score, Settings, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math.context.later import TAKEN_BACK
from slime_reward_math.extract import END_OF_THOUGHT, START_OF_THOUGHT, extract, thought_ends
from slime_reward_math.plugin import F1Settings, FormatSettings
from slime_reward_math.rewards.answers import NO_GOLD, boxed, golds

MAX_WORDS, MAX_SIGNS = 20_000, 120_000
"""Maximum words and characters read of a response: a mebibyte blocked the event loop for 0.4 s."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SPECIAL = frozenset({"yes", "no", "noanswer"})
_POINT = re.compile(r"(?<=\d)[.,](?=\d)")
_WITHOUT_SPACES = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class Overlap:
    """Scores the overlap with the best of the golds."""

    def __init__(self, settings: F1Settings, within_box: bool = False) -> None:
        self._strict, self._within_box = settings.strict_slime, within_box

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return the F1 of a sample's answer, between 0 and 1."""
        expected = texts(sample.label)
        if not expected:
            return NO_GOLD
        response = boxed(sample) if self._within_box else sample.response
        if not self._strict:
            start = thought_ends(response)
            response = "" if start is None else response[start:]
        return Score(max(f1(response, each, strict=self._strict) for each in expected))

    def check_label(self, sample: Sample) -> str | None:
        """Score the gold answer as a response; see `slime_core.roles.ChecksLabels`."""
        expected = texts(sample.label)
        if not expected:
            return NO_GOLD.reason
        if any(f1(each, each, strict=self._strict) == 1.0 for each in expected):
            return None
        return "it holds no words to compare"


def texts(label: Json) -> list[str]:
    """The gold answers of a label as texts; an object, as SQuAD's `answers`, is none."""
    return [str(each) for each in golds(label) if not isinstance(each, dict | list)]


def f1(answer: str, gold: str, strict: bool = False) -> float:
    """The F1 of two texts by words: SQuAD's, and 1 where neither holds a word; `strict` is slime's."""
    left, right = normal_form(answer[:MAX_SIGNS], strict), normal_form(gold, strict)
    if left != right and (_SPECIAL & {left, right}):
        return 0.0
    one, two = left.split()[:MAX_WORDS], right.split()[:MAX_WORDS]
    if not one or not two:
        return float(one == two and not strict)
    shared = sum((Counter(one) & Counter(two)).values())
    return 2 * shared / (len(one) + len(two))


def normal_form(text: str, strict: bool = False) -> str:
    """Lower case without punctuation, articles and needless spaces; a Chinese or Japanese sign is a word."""
    low = text.lower()
    if strict:
        bare = "".join(sign for sign in low if sign not in string.punctuation)
    else:
        # A point between digits is part of the number: 3.14 is not 314.
        marked = _POINT.sub("\ue000", low)
        kept = (sign for sign in marked if sign == "\ue000" or not unicodedata.category(sign).startswith(("P", "S")))
        bare = _WITHOUT_SPACES.sub(r" \1 ", "".join(kept))
    return " ".join(_ARTICLES.sub(" ", bare).split())


class Shape:
    """Scores only the response's form."""

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
    # This reward does not judge the box's content.
    return found.reason if settings.box and found.text is None and found.reason != TAKEN_BACK else ""


class Draw:
    """Scores at random, from the seed alone."""

    def __init__(self, settings: Settings) -> None:
        pass

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 0 or 1 with equal probability."""
        return Score(float(random.Random(ctx.seed).getrandbits(1)))
