r"""The last tier: symbolic algebra in child processes that are timed, capped in memory and killed.

Example:

    settler = Settler()
    settler(compare(r"\frac{\pi^2}{6}", r"\sum_{n=1}^{\infty}\frac{1}{n^2}")).outcome      # Outcome.CORRECT

Only what the cheaper tiers left undecided comes here, as trees that the bounded reader made: no text is ever parsed or
evaluated by sympy, which comes with the extra `slime-reward-math[symbolic]`.
"""

import importlib.util
import time

from slime_reward_math.grader import Grade, Outcome
from slime_reward_math.match.matcher import Matcher, OutOfTime
from slime_reward_math.symbolic.workers import Workers
from slime_reward_math.value.same import Unknown

__all__ = ["Settler", "Workers"]


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
