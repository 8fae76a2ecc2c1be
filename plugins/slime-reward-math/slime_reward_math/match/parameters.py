r"""Parameters: names that an answer may choose: `n` of `n \in \mathbb{Z}`, `c` of `for some constant c`, `C_1`.

Example:

    list(renamed(read(r"2n, n \in \mathbb{Z}"), read("2k")))      # 2n
"""

import itertools
import re
from collections.abc import Iterator

from slime_reward_math.match.equations import right_side
from slime_reward_math.match.forms import is_aside, is_domain, items
from slime_reward_math.match.parts import without_condition
from slime_reward_math.tree import Node, Rel, Sym, Tree, Words, rename, symbols, walk
from slime_reward_math.value.same import COUNTS

MAX_PARAMETERS = 3
"""More are not renamed: each arrangement of them is tried."""
_DECLARING = re.compile(r"\b(?:integers?|constants?|arbitrary|any|some|parameters?|natural|whole|positive)\b")
_CONSTANT = re.compile(r"[Cc]_\d|C")
_CONSTANT_TOO = re.compile(r"[CcKkABDab](?:_\d)?")
_WHOLE = ("ZZ", "NN")


def renamed(gold: Tree, answer: Tree) -> Iterator[Tree]:
    """The answer with its own parameters named as the gold names them, in every arrangement."""
    told, given = symbols(_said(gold)), symbols(_said(answer))
    ours = [name for name in told if name not in given]
    theirs = [name for name in given if name not in told]
    if not 0 < len(ours) == len(theirs) <= MAX_PARAMETERS or isinstance(_bare(gold), Sym):
        return
    free = declared(gold).issuperset(ours) or declared(answer).issuperset(theirs)
    free = free or (_real(gold).issuperset(ours) and _real(answer).issuperset(theirs))
    if free or (len(told) > len(ours) and _constants(ours, theirs)):
        for arrangement in itertools.permutations(ours):
            yield rename(answer, dict(zip(theirs, arrangement, strict=True)))


def _said(tree: Tree) -> Tree:
    """What is said without the conditions, and without the name of what it is said: `A x` of `y(x) = A x`."""
    parts = [without_condition(each) for each in items(tree) if not is_aside(each)]
    return (right_side(parts[0]) or parts[0]) if len(parts) == 1 else tree


def _bare(tree: Tree) -> Tree:
    """The first of a list: what its conditions are about."""
    return items(tree)[0]


def _constants(ours: list[str], theirs: list[str]) -> bool:
    """Whether both are names of constants that a general solution leaves open."""
    for one, two in ((ours, theirs), (theirs, ours)):
        if all(map(_CONSTANT.fullmatch, one)) and all(map(_CONSTANT_TOO.fullmatch, two)):
            return True
    return False


def declared(tree: Tree) -> set[str]:
    """The names of which a tree says that they stand for any integer, any constant, or any count above a bound."""
    found: set[str] = set()
    for each in walk(tree):
        if isinstance(each, Rel) and is_domain(each) and _is_whole(each.terms[-1]):
            found |= set(symbols(each.terms[0]))
        elif isinstance(each, Node) and each.head == "given":
            for condition in each.args[1:]:
                found |= _of_condition(condition)
        elif isinstance(each, Node) and each.head == "list":
            for clause in each.args:
                found |= _counted(clause)
    return found


def _real(tree: Tree) -> set[str]:
    r"""The names that a tree puts in some domain, the reals included: both sides have to, for such a name to change."""
    domains = [each for each in walk(tree) if isinstance(each, Rel) and is_domain(each)]
    return {name for each in domains for name in symbols(each.terms[0])}


def _is_whole(domain: Tree) -> bool:
    return isinstance(domain, Sym) and domain.name.removesuffix("*").removesuffix("+").removesuffix(">=0") in _WHOLE


def _of_condition(condition: Tree) -> set[str]:
    words = " ".join(each.text for each in walk(condition) if isinstance(each, Words))
    if _DECLARING.search(words):
        return set(symbols(condition))
    parts = condition.args if isinstance(condition, Node) and condition.head in ("and", "list") else (condition,)
    return set().union(*map(_counted, parts))


def _counted(condition: Tree) -> set[str]:
    r"""The letter of a count that is bounded: `k \ge 0`."""
    if isinstance(condition, Rel) and condition.ops[0] in ("<", "<=", ">", ">="):
        return set(COUNTS.intersection(symbols(condition)))
    return set()
