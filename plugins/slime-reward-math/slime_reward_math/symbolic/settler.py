"""Settler: decides what the cheaper tiers left undecided, with the same rules and sympy for the values.

Example:

    settler = Settler(timeout_s=2.0)
    settler(compare(gold, answer))      # the same grade if it was decided, or if sympy cannot tell either
"""

import importlib.util
import time

from slime_reward_math.match import Matcher, OutOfTime
from slime_reward_math.symbolic.workers import Workers
from slime_reward_math.value.same import Unknown
from slime_reward_math.verdict import Grade, Outcome

MAX_PAIRS = 4
"""Time limits' worth of comparisons in one verdict."""


def installed() -> bool:
    """Whether sympy is there."""
    return importlib.util.find_spec("sympy") is not None


class Settler:
    """Callable from any thread; it blocks, so an event loop calls it in one."""

    def __init__(self, *, timeout_s: float = 2.0, memory_mb: int = 1024) -> None:
        """Args are the seconds one comparison may take, and the memory of each child process.

        Raises:
            ModuleNotFoundError: sympy is not installed.
        """
        if not installed():
            raise ModuleNotFoundError(
                "The symbolic tier needs sympy, which is not installed. Type: pip install 'sympy>=1.13'"
            )
        self._workers, self._timeout_s = Workers(timeout_s=timeout_s, memory_mb=memory_mb), timeout_s

    def __call__(self, grade: Grade) -> Grade:
        """The grade, decided if it was undecided and algebra could tell."""
        gold, answer = grade.trees
        if grade.outcome is not Outcome.UNDECIDED or gold is None or answer is None:
            return grade
        matcher = Matcher(time.monotonic() + MAX_PAIRS * self._timeout_s, self._workers.equal, time.monotonic)
        try:
            equal = matcher.decide(gold, answer)
        except (Unknown, OutOfTime):
            return grade
        reason = "the same value by algebra" if equal else "another value by algebra"
        return grade._replace(outcome=Outcome.CORRECT if equal else Outcome.WRONG, reason=reason)

    def close(self) -> None:
        """End the child processes."""
        self._workers.close()
