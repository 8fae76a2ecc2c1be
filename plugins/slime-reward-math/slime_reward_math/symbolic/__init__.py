r"""The last tier: symbolic algebra in child processes that are timed, capped in memory and killed.

Example:

    settler = Settler()
    settler(compare(r"\frac{\pi^2}{6}", r"\sum_{n=1}^{\infty}\frac{1}{n^2}")).outcome      # Outcome.CORRECT

Only what the cheaper tiers left undecided comes here, as trees that the bounded reader made: no text is ever parsed or
evaluated by sympy, which comes with the extra `slime-reward-math[symbolic]`.
"""

from slime_reward_math.symbolic.settler import Settler
from slime_reward_math.symbolic.workers import Workers

__all__ = ["Settler", "Workers"]
