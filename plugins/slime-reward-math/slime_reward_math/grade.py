r"""Grade: is the boxed answer of a response the gold answer?

    grade("1234", r"\boxed{1{,}234.0}").outcome         # Outcome.CORRECT

Two answers are equal if both are numbers and have the same exact value, or if they are the same text
without needless LaTeX and spaces.
"""

import enum
import math
import re
from dataclasses import dataclass
from decimal import Decimal

from slime_reward_math.extract import BOX, last_boxed
from slime_reward_math.number import read_number

_DROPPED = re.compile(r"\$|\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[!,;:]|\{,\}(?=\d{3})")
_SHORT_FRACTION = re.compile(r"\\frac ?([0-9]) ?([0-9])")
_SPACE_BESIDE_SYMBOL = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")


class Outcome(enum.Enum):
    """What the grader found."""

    CORRECT = "correct"
    """The boxed answer is the gold answer."""
    WRONG = "wrong"
    """The boxed answer is another one."""
    NO_ANSWER = "no_answer"
    """The response has no complete box."""
    NO_GOLD = "no_gold"
    """There is no gold answer to compare with."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict and what it rests on."""

    outcome: Outcome
    """What the grader found."""
    answer: str | None = None
    """What the response's last box holds; None without one."""

    @property
    def correct(self) -> bool:
        """Whether the answer is the gold answer."""
        return self.outcome is Outcome.CORRECT


def grade(gold: object, response: str) -> Grade:
    r"""Grade a response; raises nothing, whatever it holds.

    Args:
        gold: the gold answer: a text, with or without `\boxed{}` or dollar signs, or a number.
        response: the model's text.
    """
    expected = _gold_text(gold)
    if not expected:
        return Grade(Outcome.NO_GOLD)
    answer = last_boxed(response)
    if not answer:
        return Grade(Outcome.NO_ANSWER)
    return Grade(Outcome.CORRECT if _equal(_plain(answer), expected) else Outcome.WRONG, answer)


def _plain(answer: str) -> str:
    """An answer without the LaTeX that only changes its looks, with single spaces."""
    text = answer.replace("\u2212", "-").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = _DROPPED.sub("", text.replace("\\ ", " ").replace("~", " "))
    return _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", " ".join(text.split())).removesuffix(".")


def _gold_text(gold: object) -> str:
    """The gold answer in plain form; empty if there is none."""
    if isinstance(gold, str):
        return _plain((last_boxed(gold) or "") if BOX in gold else gold)
    # Numbers are written out in full: str(1e-07) is in scientific notation, and str() refuses huge integers.
    if isinstance(gold, int) and not isinstance(gold, bool):
        return format(Decimal(gold), "f")
    if isinstance(gold, float) and math.isfinite(gold):
        return format(Decimal(str(gold)), "f")
    return ""


def _equal(answer: str, expected: str) -> bool:
    if _SPACE_BESIDE_SYMBOL.sub("", answer) == _SPACE_BESIDE_SYMBOL.sub("", expected):
        return True
    left, right = read_number(answer), read_number(expected)
    return left is not None and left == right
