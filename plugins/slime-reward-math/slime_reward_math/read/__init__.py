r"""Reads an answer's text into a tree, bounded in length, depth and time; nothing is ever evaluated as code.

Example:

    read(r"x \in [1, 2)")      # Rel(("in",), (Sym("x"), Node("[)", (1, 2))))
"""

from slime_reward_math.read.answer import read
from slime_reward_math.read.clean import clean
from slime_reward_math.read.tokens import Grouping, Unread

__all__ = ["Grouping", "Unread", "clean", "read"]
