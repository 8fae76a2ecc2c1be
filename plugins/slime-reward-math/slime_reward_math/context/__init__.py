r"""What a response says around its box: a formula that goes on, words that change the box, answers stated later.

Example:

    around(r"The answer is at least \boxed{5}.", 0, 23, 31, "5")      # Around(r"\text{at least }5", ...)
"""

from slime_reward_math.context.around import Around, around, equated
from slime_reward_math.context.before import conditional_within
from slime_reward_math.context.later import CHANGED, NOTHING, TAKEN_BACK, later, stated

__all__ = ["CHANGED", "NOTHING", "TAKEN_BACK", "Around", "around", "conditional_within", "equated", "later", "stated"]
