r"""Grades mathematical answers: the last boxed answer of a response against the gold answer, rigorously.

Example:

    from slime_reward_math import grade

    grade("1/2", r"... so the answer is \boxed{0.5}.").correct        # True

slime-core finds the rewards in `slime_reward_math.plugin`; the grader itself does not need slime-core.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime_reward_math.grader import Grade, Outcome, compare, grade, grade_many

__all__ = ["Grade", "Outcome", "compare", "grade", "grade_many"]


def __getattr__(name: str) -> object:
    """Import an exported name on first use: the grader's patterns take 0.2 s to compile."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from slime_reward_math import grader

    return getattr(grader, name)
