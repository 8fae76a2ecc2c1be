r"""Piecewise: case distinctions compared by value, with each other and with closed forms.

Example:

    agree(read(r"\begin{cases}x-1 & x\ge1\\1-x & x<1\end{cases}"), read("|x-1|"), matcher.match)      # True

The variable of the conditions takes values on both sides of every bound; other variables stay symbolic.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

from slime_reward_math.match.equations import Comparing
from slime_reward_math.match.forms import LISTS, is_domain
from slime_reward_math.tree import (
    CONSTANTS,
    Node,
    Num,
    Rel,
    Sym,
    Tree,
    Words,
    has_head,
    number,
    put,
    symbols,
    walk,
)
from slime_reward_math.value.evaluate import approximate, exactly
from slime_reward_math.value.same import COUNTS

Compare = Callable[[Tree, Tree], bool]
_SMALL = frozenset(
    {"is", "are", "for", "if", "when", "n", "a", "an", "number", "integer", "integers", "all", "and", ""}
)
_HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "=": lambda one, two: one == two, "!=": lambda one, two: one != two, "<": lambda one, two: one < two,
    "<=": lambda one, two: one <= two, ">": lambda one, two: one > two, ">=": lambda one, two: one >= two,
}  # fmt: skip
_STEPS = tuple(Fraction(above, below) for above, below in ((1, 7), (3, 4), (1, 1), (5, 3), (37, 13), (91, 8)))
_WHOLE = tuple(map(Fraction, range(1, 15)))
MAX_PLACES = 60
"""Maximum places at which values are compared."""
MIN_HITS = 3
"""Minimum places for each case, unless it is a single point."""


class _Unclear(Exception):
    """A condition that is not understood."""


def cases(matcher: Comparing, gold: Tree, answer: Tree) -> bool:
    """Case distinctions, one or two: case by case in any order, else by value."""
    both = [each.args for each in (gold, answer) if isinstance(each, Node) and each.head == "cases"]
    if len(both) == 2 and len(both[0]) == len(both[1]) and matcher.any_order(*both):
        return True
    return agree(gold, answer, matcher.match)


def agree(gold: Tree, answer: Tree, compare: Compare) -> bool:
    """Whether gold and answer, one or both a case distinction, have equal values on the gold's domain."""
    try:
        sides = [_Side(gold), _Side(answer)]
        names = {name for side in sides for name in side.names}
        if len(names) != 1:
            return False
        return _everywhere(sides[0], sides[1], names.pop(), compare)
    except _Unclear:
        return False


class _Side:
    """One side: rows of a value and its condition, or one value for all places."""

    def __init__(self, tree: Tree) -> None:
        self.rows: list[tuple[Tree, Tree | None]] = []
        self.total = not (isinstance(tree, Node) and tree.head == "cases")
        for row in () if self.total or not isinstance(tree, Node) else tree.args:
            if not (isinstance(row, Node) and len(row.args) == 2):
                raise _Unclear
            self.rows.append((row.args[0], row.args[1]))
        if self.total:
            self.rows.append((tree, None))
        self.hits = [0] * len(self.rows)
        self.names = {name for _, when in self.rows if when is not None for name in _subjects(when)}

    def at(self, name: str, place: Fraction) -> Tree | None:
        """The value at a place; None where no case applies."""
        for row, (value, when) in enumerate(self.rows):
            if when is None or _holds(when, name, place):
                self.hits[row] += 1
                return put(value, {name: Num(place)})
        return None

    def tested(self) -> bool:
        """Whether every case was met at enough places."""
        return all(
            count >= (1 if when is not None and _is_single(when) else MIN_HITS)
            for count, (_, when) in zip(self.hits, self.rows, strict=True)
        )


def _everywhere(gold: _Side, answer: _Side, name: str, compare: Compare) -> bool:
    for place in _places([when for side in (gold, answer) for _, when in side.rows if when is not None], name):
        one = gold.at(name, place)
        two = answer.at(name, place)
        if one is None:
            continue
        if two is None or not compare(one, two):
            return False
    return gold.tested() and answer.tested()


def _places(conditions: list[Tree], name: str) -> list[Fraction]:
    bounds = sorted({value for when in conditions for value in _bounds(when)})
    whole = name in COUNTS or any(_is_parity(when) for when in conditions)
    if whole:
        near = [bound + step for bound in bounds if bound.denominator == 1 for step in range(-3, 4)]
        signed = [place for place in near if place > 0 or any(_allows(when, name, place) for when in conditions)]
        return sorted({*_WHOLE, *signed})[:MAX_PLACES]
    steps = (Fraction(0), *_STEPS, *(-step for step in _STEPS))
    found = {bound + step for bound in bounds or [Fraction(0)] for step in steps}
    found |= {low + (high - low) * part for low, high in pairwise(bounds) for part in _STEPS[:2]}
    found |= {low + (high - low) * Fraction(2, 5) for low, high in pairwise(bounds)}
    return sorted(found)[:MAX_PLACES]


def _allows(when: Tree, name: str, place: Fraction) -> bool:
    return any(isinstance(each, Rel) for each in walk(when)) and _holds(when, name, place)


def _bounds(when: Tree) -> Iterator[Fraction]:
    for each in walk(when):
        if isinstance(each, Rel):
            for term in each.terms:
                value = exactly(term)
                if value is None and not symbols(term):
                    size = approximate(term)
                    value = Fraction(size).limit_denominator(1000) if size is not None else None
                if value is not None:
                    yield value


def _subjects(when: Tree) -> list[str]:
    """The variables that a condition is about: in `n = 2k` that is n."""
    names = [name for name in symbols(when) if name not in CONSTANTS]
    for each in walk(when):
        if isinstance(each, Rel) and each.ops == ("=",) and isinstance(each.terms[0], Sym) and symbols(each.terms[1]):
            return [each.terms[0].name]
    return names


def _is_single(when: Tree) -> bool:
    return any(isinstance(each, Rel) and each.ops == ("=",) for each in walk(when))


def _is_parity(when: Tree) -> bool:
    return any(isinstance(each, Words) and not {"even", "odd"}.isdisjoint(each.text.split()) for each in walk(when))


def _holds(when: Tree, name: str, place: Fraction) -> bool:
    if isinstance(when, Rel):
        return _relation(when, name, place)
    if isinstance(when, Words):
        return _words(when.text, place)
    if isinstance(when, Node) and when.head in ("given", "unit", "label", *LISTS):
        parts = [each for each in when.args if each != Sym(name) and not is_domain(each)]
        if when.head == "or":
            return any(_holds(each, name, place) for each in parts)
        return all(_holds(each, name, place) for each in parts)
    raise _Unclear


def _words(text: str, place: Fraction) -> bool:
    left = [word for word in text.split() if word not in _SMALL]
    if not left or left == ["otherwise"]:
        return True
    if left in (["even"], ["odd"]):
        return place.denominator == 1 and (place % 2 == 0) == (left == ["even"])
    raise _Unclear


def _relation(when: Rel, name: str, place: Fraction) -> bool:
    if is_domain(when):
        return True
    if when.ops == ("equiv",) and isinstance(when.terms[1], Node) and when.terms[1].head == "residue":
        left, right, modulus = (exactly(put(each, {name: Num(place)})) for each in (when.terms[0], *when.terms[1].args))
        if left is None or right is None or not modulus:
            raise _Unclear
        return (left - right) % modulus == 0
    if when.ops == ("=",) and (spelled := _spelled(when.terms[1])) in ("even", "odd"):
        return _words(spelled, place)
    if when.ops == ("=",) and (counted := symbols(put(when.terms[1], {name: Num(place)}))):
        return _is_counted(when.terms[1], counted, place)
    terms = [_value(put(each, {name: Num(place)})) for each in when.terms]
    if not set(when.ops) <= _HOLDS.keys():
        raise _Unclear
    return all(_HOLDS[sign](*pair) for sign, pair in zip(when.ops, pairwise(terms), strict=True))


def _spelled(tree: Tree) -> str:
    r"""A word that was read as a product of its letters: `n is odd` without a `\text{}`."""
    parts = tree.args if isinstance(tree, Node) and tree.head == "*" else ()
    return "".join(each.name if isinstance(each, Sym) else "?" for each in parts)


def extremes(tree: Tree, other: Tree) -> Tree:
    """The larger or smaller of two values, given by cases, as `max` or `min`, if the other side has one."""
    rows = tree.args if isinstance(tree, Node) and tree.head == "cases" else ()
    if len(rows) != 2 or not (has_head(other, "max") or has_head(other, "min")):
        return tree
    said = [_chosen(row, rows[1 - place]) for place, row in enumerate(rows)]
    if not said[0] or said[1] not in (said[0], "rest"):
        return tree
    return Node(said[0], tuple(row.args[0] for row in rows if isinstance(row, Node)))


def _chosen(row: Tree, another: Tree) -> str:
    """Which of two values a row has: `max`, `min`, `rest` (the opposite of the other row), or empty if unclear."""
    if not (isinstance(row, Node) and isinstance(another, Node) and len(row.args) == len(another.args) == 2):
        return ""
    when = row.args[1]
    while isinstance(when, Node) and when.head == "given" and len(when.args) == 1:
        when = when.args[0]
    if isinstance(when, Words) and when.text in ("", "otherwise", "else"):
        return "rest"
    if not (isinstance(when, Rel) and when.ops in ((">",), (">=",), ("<",), ("<=",))):
        return ""
    larger, smaller = when.terms if when.ops[0][0] == ">" else when.terms[::-1]
    values = row.args[0], another.args[0]
    return "max" if values == (larger, smaller) else "min" if values == (smaller, larger) else ""


def _is_counted(tree: Tree, names: list[str], place: Fraction) -> bool:
    """Whether a place is among `2k + 1`."""
    first, second = (exactly(put(tree, {names[0]: number(count)})) for count in (0, 1))
    if len(names) > 1 or names[0] not in COUNTS or first is None or second is None or first == second:
        raise _Unclear
    return ((place - first) / (second - first)).denominator == 1


def _value(tree: Tree) -> Fraction:
    exact = exactly(tree)
    if exact is not None:
        return exact
    if tree == Sym("inf") or tree == Node("neg", (Sym("inf"),)):
        return Fraction(10**30 if tree == Sym("inf") else -(10**30))
    size = approximate(tree)
    if size is None:
        raise _Unclear
    return Fraction(size)
