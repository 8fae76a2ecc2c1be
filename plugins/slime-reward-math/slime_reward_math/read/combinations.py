r"""Combinations: `C_{10}^{5}`, `C_{2n}^n` and `A_5^3`, which look like powers of a variable with a subscript.

Example:

    combination(Sym("C_5"), number(2))      # binom(5, 2)
"""

import re

from slime_reward_math.tree import Node, Num, Sym, Tree, number

_KIND = re.compile(r"([CAP])_(\d{0,6})([nmN]?)((?<=[nmN])[+-]\d{1,3})?")


def combination(base: Tree, exponent: Tree) -> Tree | None:
    """`C_{10}^{5}`, `C_{2n}^n` and `A_5^3` as binomial coefficients and falling factorials; None for a plain power."""
    match = _KIND.fullmatch(base.name) if isinstance(base, Sym) else None
    if match is None:
        return None
    kind, factor, name, shift = match.groups()
    if name and kind != "C":
        return None
    if not name and not (factor and isinstance(exponent, Num) and 1 < int(factor) >= exponent.value):
        return None
    above: Tree = Sym(name) if name else number(int(factor))
    if name and factor:
        above = Node("*", (number(int(factor)), above))
    if shift:
        above = Node("+", (above, number(int(shift))))
    return choices(kind, above, exponent)


def choices(kind: str, above: Tree, below: Tree) -> Tree:
    """How many choices there are, and for any letter but C how many arrangements of them."""
    chosen = Node("binom", (above, below))
    return chosen if kind == "C" else Node("*", (chosen, Node("factorial", (below,))))
