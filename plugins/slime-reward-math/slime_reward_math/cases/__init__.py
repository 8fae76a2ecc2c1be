"""The plugin's own cases, shipped so that anyone can repeat its figures: pairs with verdicts, and hostile answers.

Example:

    [pair for pair in pairs() if compare(pair.gold, pair.answer).correct is not pair.expected]
"""

from slime_reward_math.cases.hostile import Hostile, box, hostile
from slime_reward_math.cases.pairs import PAIRS, Pair, pairs

__all__ = ["PAIRS", "Hostile", "Pair", "box", "hostile", "pairs"]
