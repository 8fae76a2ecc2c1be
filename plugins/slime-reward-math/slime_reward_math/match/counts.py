r"""Counts: inequalities of integers, which have no open ends: `n > 4` is `n \ge 5`.

Example:

    closed(read("n > 4"), read(r"n \ge 5"))      # n >= 5
"""

from itertools import pairwise

from slime_reward_math.match.forms import is_domain
from slime_reward_math.tree import Num, Rel, Sym, Tree, rebuild, symbols, walk

_ALWAYS = frozenset({"n", "N"})
"""Names that take integers without a word; others have to be declared."""
_WHOLE = (Sym("ZZ"), Sym("NN"))


def closed(tree: Tree, other: Tree) -> Tree:
    """The tree with its integers' inequalities closed; those that then hold nowhere are left as they are."""
    if not any(isinstance(each, Rel) and each.ops[0][0] in "<>" for each in walk(other)):
        return tree
    whole = _ALWAYS | _declared(tree) | _declared(other)

    def change(each: Tree) -> Tree | None:
        named = isinstance(each, Rel) and len(names := symbols(each)) == 1 and names[0] in whole
        return _closed(each) if named and isinstance(each, Rel) else None

    return rebuild(tree, change)


def _declared(tree: Tree) -> set[str]:
    domains = [each for each in walk(tree) if isinstance(each, Rel) and is_domain(each) and each.terms[-1] in _WHOLE]
    return {name for each in domains for name in symbols(each.terms[0])}


def _closed(rel: Rel) -> Rel | None:
    operators, terms = list(rel.ops), list(rel.terms)
    for place, (sign, (left, right)) in enumerate(zip(rel.ops, pairwise(rel.terms), strict=True)):
        step = {"<": 1, ">": -1}.get(sign, 0)
        if step and _whole(left) and isinstance(right, Sym):
            terms[place] = _moved(left, step)
        elif step and _whole(right) and isinstance(left, Sym):
            terms[place + 1] = _moved(right, -step)
        else:
            continue
        operators[place] += "="
    bounds = [each.value for each in terms if isinstance(each, Num)]
    rising = operators[0][0] == "<"
    if len(bounds) == 2 and (bounds[0] > bounds[1] if rising else bounds[0] < bounds[1]):
        return None
    return Rel(tuple(operators), tuple(terms))


def _whole(tree: Tree) -> bool:
    return isinstance(tree, Num) and tree.value.denominator == 1


def _moved(tree: Tree, step: int) -> Tree:
    return Num(tree.value + step) if isinstance(tree, Num) else tree
