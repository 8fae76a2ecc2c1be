"""Verdict: what the grader found, why, and what it rests on."""

import enum
from typing import NamedTuple

from slime_reward_math.show import show
from slime_reward_math.tree import Tree


class Outcome(enum.Enum):
    """What the grader found."""

    CORRECT = "correct"
    """The answer is the gold answer."""
    WRONG = "wrong"
    """It is another one, or there is none."""
    UNDECIDED = "undecided"
    """Neither could be shown, or there is no gold answer; never counted as wrong by itself."""
    TIMEOUT = "timeout"
    """The deadline passed first."""


class Grade(NamedTuple):
    """A verdict and what it rests on."""

    outcome: Outcome
    """What the grader found."""
    reason: str
    """Why, in a few countable words: it may become a metric."""
    answer: str | None = None
    """What was extracted from the response; None without an answer."""
    gold: str = ""
    """The gold answer as text."""
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
        """The normal forms of gold and answer, as far as they were read."""
        gold, answer = self.trees
        return show(gold) if gold is not None else self.gold, show(answer) if answer is not None else self.answer or ""
