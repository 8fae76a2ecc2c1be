r"""Grade: is the answer of a response the gold answer?

Example:

    grade("1/2", r"so we get \boxed{0.5}").outcome      # Outcome.CORRECT

Cheapest first: text, then plain numbers, then trees and exact or rigorous values. Repeated pairs come from a memo,
gold answers are read once. Nothing is evaluated as code and no signal is set, so that any thread or process may grade.
"""

import enum
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from slime_reward_math import plain
from slime_reward_math.context.before import conditional_within
from slime_reward_math.context.later import CHANGED, TAKEN_BACK
from slime_reward_math.cpu_deadline import DEADLINE_S, cpu_time
from slime_reward_math.extract import MAX_ANSWER, Extracted, extract, gold_text
from slime_reward_math.match.matcher import Matcher, OutOfTime
from slime_reward_math.read import Grouping, Unread, clean, read
from slime_reward_math.read.answer_phrases import NONE, in_signs
from slime_reward_math.tree import Num, Tree, show
from slime_reward_math.value.same import Unknown


class Outcome(enum.Enum):
    """What the grader found."""

    CORRECT = "correct"
    """The answer is the gold answer."""
    WRONG = "wrong"
    """The answer differs, or there is none."""
    UNDECIDED = "undecided"
    """Neither could be shown, or there is no gold answer; never counted as wrong by itself."""
    TIMEOUT = "timeout"
    """The deadline passed first."""


class Grade(NamedTuple):
    """A verdict with its reason."""

    outcome: Outcome
    reason: str
    """Why, in a few countable words: it may become a metric."""
    answer: str | None = None
    """What was extracted from the response; None without an answer."""
    gold: str = ""
    trees: tuple[Tree | None, Tree | None] = (None, None)
    """Gold and answer as they were read; None where text or numbers decided, or where nothing could be read."""

    @property
    def correct(self) -> bool:
        """Whether the answer is the gold answer."""
        return self.outcome is Outcome.CORRECT

    @property
    def score(self) -> float | None:
        """1.0 for correct, 0.0 for wrong, None where nothing was decided."""
        return {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.0}.get(self.outcome)

    @property
    def forms(self) -> tuple[str, str]:
        """The normal forms of gold and answer, or the text of a side that was not parsed."""
        gold, answer = self.trees
        return show(gold) if gold is not None else self.gold, show(answer) if answer is not None else self.answer or ""


MIN_WORDS = 3
"""Minimum words that make an unreadable gold language."""
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_OTHER_MONEY = re.compile(r"cent|euro|pound|\byen\b|rupee|yuan|rmb|peso")
FAULT = "a fault of the grader"
"""Prefix of the reason if a fault of this package caused the verdict."""
MEMO = 4_096
"""Maximum pairs in the memo."""
MAX_REMEMBERED = 2_000
"""Maximum characters of a text in the memo."""


class Side(NamedTuple):
    """One side of a comparison, prepared."""

    text: str
    clean: str
    squeezed: str
    """Without what only changes its looks."""
    number: Fraction | int | None
    """Its value, if it is a plain number."""


def grade(gold: object, response: str, *, phrases: bool = False, deadline_s: float = DEADLINE_S) -> Grade:
    r"""Grade a response; never raises.

    Args:
        gold: the gold answer: a text, with or without `\boxed{}` or dollar signs, or a number.
        response: the model's text.
        phrases: whether `the final answer is ...` will do where there is no box.
        deadline_s: seconds of this thread's time after which the verdict is `timeout`.
    """
    text = _gold_of_text(gold) if isinstance(gold, str) and len(gold) <= MAX_REMEMBERED else gold_text(gold)
    if not text:
        return Grade(Outcome.UNDECIDED, "no gold answer")
    found = settled(extract(response, phrases))
    answer = found.text
    if answer is None or found.equation is not None:
        return judged(text, found, deadline_s=deadline_s)
    if answer == text and (answer[-1].isalnum() or answer[-1] == "}"):
        # Text with another ending may consist of punctuation only, which is no answer.
        return Grade(Outcome.CORRECT, "the same text", answer, text)
    if _is_integer(answer) and _is_integer(text):
        # Half of all pairs are integers: compare them directly.
        same = int(answer) == int(text)
        return _grade(same, "the same number" if same else "another number", text, answer)
    return compare(text, answer, deadline_s=deadline_s)


def judged(gold: str, found: Extracted, *, deadline_s: float = DEADLINE_S) -> Grade:
    """Grade a settled extraction; if a boxed name is not the answer, the equation that it opens may be."""
    if found.text is None:
        verdict = Grade(Outcome.WRONG, found.reason, None, gold)
    else:
        verdict = compare(gold, found.text, deadline_s=deadline_s)
    if verdict.correct or found.equation is None:
        return verdict
    other = compare(gold, found.equation, deadline_s=deadline_s)
    return other if other.correct else verdict


def settled(found: Extracted) -> Extracted:
    """The extraction, without its answer if the response states a different one after its box."""
    if found.stated is None or found.text is None:
        return found
    if found.stated.startswith("\\text{") and not plain.may_be_language(found.text):
        # Words without a number describe the answer: `the answer is correct`.
        spelled = _read(found.stated, Grouping.OUTSIDE)
        if not isinstance(spelled, Num):
            return found
    if found.stated != CHANGED and (compare(found.text, found.stated).score or compare(found.stated, found.text).score):
        return found
    # For a boxed name, the equation that it opens may agree with the stated answer.
    agrees = found.equation is not None and compare(found.stated, found.equation).correct
    return Extracted(None, TAKEN_BACK, equation=found.equation if agrees else None)


def _is_integer(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= plain.MAX_NUMBER


def grade_many(pairs: Iterable[tuple[object, str]], *, deadline_s: float = DEADLINE_S) -> list[Grade]:
    """Grade (gold, response) pairs, in order."""
    return [grade(gold, response, deadline_s=deadline_s) for gold, response in pairs]


def compare(gold: str, answer: str, *, deadline_s: float = DEADLINE_S) -> Grade:
    """Grade a bare answer: both sides are answers without a response around them."""
    if len(gold) <= MAX_REMEMBERED and len(answer) <= MAX_REMEMBERED:
        return _remembered(gold, answer, deadline_s)
    return _compare(gold, answer, deadline_s)


@lru_cache(MEMO)
def _gold_of_text(gold: str) -> str:
    return gold_text(gold)


@lru_cache(MEMO)
def _remembered(gold: str, answer: str, deadline_s: float) -> Grade:
    return _compare(gold, answer, deadline_s)


@lru_cache(MEMO)
def _side(text: str) -> Side:
    return _prepare(text)


def _prepare(text: str) -> Side:
    if _is_integer(text):
        return Side(text, text, text, int(text))
    cleaned = clean(text)
    # Not the number of the squeezed text: `32, 349` is a list, and `32,349` may be a number.
    return Side(text, cleaned, plain.squeeze(cleaned), plain.number(cleaned))


@lru_cache(1_024)
def _read_gold(text: str, grouping: Grouping) -> Tree | Unread:
    return _read(text, grouping)


def _read(text: str, grouping: Grouping) -> Tree | Unread:
    try:
        return read(text, grouping)
    except Unread as error:
        return error.with_traceback(None)


def _compare(gold: str, answer: str, deadline_s: float) -> Grade:
    deadline = cpu_time() + deadline_s
    if len(answer) > MAX_ANSWER or len(gold) > MAX_ANSWER:
        return _grade(gold.strip() == answer.strip(), "too long to be read", gold, answer)
    left, right = _side(gold), _prepare(answer)
    if not right.clean:
        return Grade(Outcome.WRONG, "the answer is empty", answer, gold)
    if conditional_within(answer, gold):
        return Grade(Outcome.WRONG, "a condition of which the gold answer says nothing", answer, gold)
    try:
        found = _by_text(left, right)
        return _grade(*found, gold, answer) if found is not None else _by_tree(left, right, deadline)
    except Exception as error:
        # A fault of this grader must neither stop a run nor look like a wrong answer; tests look for this reason.
        return Grade(Outcome.UNDECIDED, f"{FAULT}: {type(error).__name__}", answer, gold)


def _grade(correct: bool, reason: str, gold: str, answer: str) -> Grade:
    return Grade(Outcome.CORRECT if correct else Outcome.WRONG, reason, answer, gold)


def _by_text(left: Side, right: Side) -> tuple[bool, str] | None:
    if left.squeezed == right.squeezed:
        return True, "the same text"
    one, two = left.number, right.number
    if one is not None and two is not None:
        return _by_number(one == two, left, right.squeezed)
    if one is not None and "." in left.squeezed and right.squeezed.replace(",", ".") == left.squeezed:
        return True, "the same number with a decimal comma"
    if "." not in left.squeezed and "." not in right.squeezed:
        square = plain.square(left.squeezed, one)
        other = plain.square(right.squeezed, two) if square is not None else None
        if other is not None:
            return square == other, "the same number" if square == other else "another number"
    if left.clean.endswith("%") or right.clean.endswith("%"):
        percentage = plain.same_percentage(left.clean, right.clean)
        if percentage and "\\$" in left.text and not left.clean.endswith("%"):
            return False, "money is not a percentage"
        if percentage is not None:
            return percentage, "the same percentage" if percentage else "another percentage"
    if "," in left.clean or "," in right.clean or "\\" in right.clean:
        listed = plain.same_list(left.clean, right.clean)
        if listed is not None:
            return listed, "the same numbers" if listed else "other numbers"
    if left.number is not None or not plain.may_be_language(left.clean):
        return None
    opened = plain.opening_choice(left.clean)
    if opened is not None and (theirs := plain.opening_choice(right.clean)) is not None and opened != theirs:
        return False, "another choice"
    picked = plain.chosen(right.clean)
    if picked is not None:
        letter = plain.choice(left.clean) or (plain.chosen(left.clean) if plain.choice(right.clean) else None)
        if letter is not None:
            return letter == picked, "the choice"
    one_words, two_words = plain.words(left.clean), plain.words(right.clean)
    if one_words in ("yes", "no") and two_words is None:
        two_words = plain.reply(right.clean)
        if two_words is None and plain.hedged(right.clean):
            return False, "another reply"
    elif two_words in ("yes", "no") and one_words is None and not any(sign.isdigit() for sign in left.clean):
        one_words = plain.reply(left.clean)
    if one_words is not None and two_words is not None:
        if plain.same_words(one_words, two_words):
            return True, "the same words"
        if any(len(word) > 2 for word in (*one_words.split(), *two_words.split())):
            return False, "other words"
    return None


def _by_number(equal: bool, left: Side, right: str) -> tuple[bool, str] | None:
    """Verdict on two plain numbers; None leaves it to the trees, for a possible list or rounded number."""
    if equal:
        return True, "the same number"
    open_commas = "," in left.squeezed or "," in right
    # One of the two may be the other, rounded; the rule for rounding needs trees.
    rounded = ("." in left.squeezed) != ("." in right) and left.number != int(left.number or 0)
    return None if open_commas or rounded else (False, "another number")


def _by_tree(left: Side, right: Side, deadline: float) -> Grade:
    unknown: Unknown | None = None
    shown: tuple[Tree | None, Tree | None] = (None, None)
    readings: list[tuple[Tree | Unread, Tree | Unread]] = []
    for gold, answer in _pairs(left, right):
        readings.append((gold, answer))
        if isinstance(gold, Unread) or isinstance(answer, Unread):
            continue
        shown = (gold, answer) if shown == (None, None) else shown
        try:
            if Matcher(deadline).decide(gold, answer):
                return Grade(Outcome.CORRECT, "the same value or form", right.text, left.text, (gold, answer))
        except Unknown as error:
            unknown = error
        except OutOfTime:
            return Grade(Outcome.TIMEOUT, "the deadline passed", right.text, left.text, shown)
    if unknown is not None:
        return Grade(Outcome.UNDECIDED, str(unknown), right.text, left.text, shown)
    return _unread_or_wrong(left, right, readings, shown)


def _pairs(left: Side, right: Side) -> Iterator[tuple[Tree | Unread, Tree | Unread]]:
    """Gold and answer as trees, one pair per reading of their commas, parsed lazily."""
    answers: list[Tree | Unread] = []
    for text, grouping in _readings(_priced(left, right), of_gold=True):
        gold = _read_gold(text, grouping)
        if not answers:
            for other, its_grouping in _readings(_priced(right, left)):
                answers.append(_read(other, its_grouping))
                yield gold, answers[-1]
        else:
            yield from ((gold, answer) for answer in answers)


def _priced(side: Side, other: Side) -> str:
    """The cleaned text, its dollar sign spelled out where the other side counts in cents, or in other money."""
    priced = "\\$" in side.text and _OTHER_MONEY.search(other.clean) is not None
    return side.clean + " \\text{ dollars}" if priced else side.clean


def _readings(text: str, of_gold: bool = False) -> list[tuple[str, Grouping]]:
    ways = [(text, Grouping.OUTSIDE)]
    if "," in text:
        if plain.may_group(text):
            ways = [(text, each) for each in Grouping]
        if (number := plain.decimal_comma(text)) is not None:
            ways.append((number, Grouping.OUTSIDE))
    if (rest := plain.after_choice(text)) is not None:
        ways.append((rest, Grouping.OUTSIDE))
    if plain.may_be_language(text) and (signs := in_signs(text)) is not None and not (of_gold and signs == NONE):
        ways.append((signs, Grouping.OUTSIDE))
    return ways


def _unread_or_wrong(
    left: Side, right: Side, readings: list[tuple[Tree | Unread, Tree | Unread]], shown: tuple[Tree | None, Tree | None]
) -> Grade:
    golds = [gold for gold, _ in readings]
    if not all(isinstance(each, Unread) for each in golds):
        unread = all(isinstance(answer, Unread) for _, answer in readings)
        reason = "the answer is unreadable" if unread else "another value or form"
        return Grade(Outcome.WRONG, reason, right.text, left.text, shown)
    one, two = loose(left.clean), loose(right.clean)
    if one and one == two:
        return Grade(Outcome.CORRECT, "the same words and signs", right.text, left.text)
    # An answer that does not repeat a gold in words is wrong; a gold in signs may be written in other signs.
    if plain.words(left.clean) is not None or _mostly_words(left.clean):
        return Grade(Outcome.WRONG, "other words", right.text, left.text)
    return Grade(Outcome.UNDECIDED, f"the gold answer is unreadable: {golds[0]}", right.text, left.text)


def loose(text: str) -> str:
    """Letters, digits and operators alone: for comparing what could not be read."""
    bare = plain.unwrapped(plain.squeeze(text)).casefold()
    return "".join(sign for sign in bare if not sign.isspace() and sign not in "{}$.")


def _mostly_words(text: str) -> bool:
    return len(_WORD.findall(plain.unwrapped(text))) >= MIN_WORDS


def forget() -> None:
    """Empty the memos, for measuring and for long runs that change their data."""
    for memo in (_remembered, _gold_of_text, _side, _read_gold):
        memo.cache_clear()
