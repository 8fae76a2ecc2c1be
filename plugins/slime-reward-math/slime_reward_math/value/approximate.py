r"""Approximate: a constant's place on the real line, for sorting and signs.

Example:

    approximate(read(r"\sqrt{2}"))      # 1.4142135623730951
"""

from fractions import Fraction

from slime_reward_math.tree import Num, Tree, symbols
from slime_reward_math.value.evaluate import Evaluation
from slime_reward_math.value.field import Beyond, Imprecise, TooBig, Undefined
from slime_reward_math.value.fields import EXACT, NeedsBalls, field


def approximate(tree: Tree, bits: int = 128) -> float | None:
    """The real value of a constant as a float; None if it has none, or none that is real and fits."""
    if isinstance(tree, Num):
        return _float(tree.value)
    if symbols(tree):
        return None
    for precision in (EXACT, bits):
        try:
            with field(precision) as numbers:
                value = Evaluation(numbers, {}).value(tree)
                if isinstance(value, Fraction):
                    return _float(value)
                return numbers.approximate(value) if numbers.is_real(value) else None
        except NeedsBalls:
            continue
        except (Undefined, Imprecise, TooBig, Beyond):
            return None
    return None


def exactly(tree: Tree) -> Fraction | None:
    """The rational value of a constant; None if it has none or is irrational."""
    if isinstance(tree, Num):
        return tree.value
    if symbols(tree):
        return None
    try:
        with field(EXACT) as numbers:
            value = Evaluation(numbers, {}).value(tree)
    except (NeedsBalls, Undefined, Imprecise, TooBig, Beyond):
        return None
    return value if isinstance(value, Fraction) else None


def _float(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
