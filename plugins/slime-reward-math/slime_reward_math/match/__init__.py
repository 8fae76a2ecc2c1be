"""Decides whether two trees are the same answer, rule by rule.

Example:

    Matcher(deadline).match(gold, answer)
"""

from slime_reward_math.match.matcher import Matcher, OutOfTime

__all__ = ["Matcher", "OutOfTime"]
