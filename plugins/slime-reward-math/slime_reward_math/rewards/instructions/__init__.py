"""Verifiers of instructions: IFEval's by their names, and those of IFBench that need no language model to check.

Example:

    VERIFIERS["punctuation:no_comma"]("No commas here.", Arguments({}))      # True

Nothing is downloaded or installed; an instruction that is not here leaves its sample unscored.
"""

from slime_reward_math.rewards.instructions.arguments import Arguments, Verifier, text_of
from slime_reward_math.rewards.instructions.counts import COUNTS
from slime_reward_math.rewards.instructions.forms import FORMS
from slime_reward_math.rewards.instructions.sequences import SEQUENCES

VERIFIERS: dict[str, Verifier] = COUNTS | FORMS | SEQUENCES
"""Verifiers by the instruction's name."""

__all__ = ["VERIFIERS", "Arguments", "Verifier", "text_of"]
