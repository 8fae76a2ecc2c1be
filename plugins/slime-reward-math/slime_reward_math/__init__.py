r"""Grades mathematical answers: the last boxed answer of a response against the gold answer, exactly.

    from slime_reward_math import grade

    grade("1/2", r"... so the answer is \boxed{0.5}.").correct        # True

slime-core finds the reward `math` in `slime_reward_math.plugin`; this package itself needs nothing but Python.
"""

from slime_reward_math.grade import Grade, Outcome, grade

__all__ = ["Grade", "Outcome", "grade"]
