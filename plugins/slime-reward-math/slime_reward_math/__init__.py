r"""Grades mathematical answers: the last boxed answer of a response against the gold answer, rigorously.

Example:

    from slime_reward_math import grade

    grade("1/2", r"... so the answer is \boxed{0.5}.").correct        # True

slime-core finds the rewards in `slime_reward_math.plugin`; the grader itself needs slime-core for nothing.
"""

from slime_reward_math.grader import compare, grade, grade_many
from slime_reward_math.verdict import Grade, Outcome

__all__ = ["Grade", "Outcome", "compare", "grade", "grade_many"]
