r"""Equations: the value that an equation states, names of values, chains, and equivalent equations.

Example:

    stated(read("x = y = 5"), read("5"), of_answer=True)      # 5
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from slime_reward_math.match.forms import ROUND, is_label, minus, negative
from slime_reward_math.read.names import FLIPPED
from slime_reward_math.tree import (
    CONSTANTS,
    Node,
    Num,
    Rel,
    Sym,
    Tree,
    Words,
    number,
    put,
    rename,
    symbols,
    walk,
)
from slime_reward_math.value.evaluate import approximate
from slime_reward_math.value.same import Unknown, same

_EQUAL = {"=", "~"}
_COORDINATES = frozenset({"x", "y", "z"})
_IN_FULL = {"max": "maximum", "min": "minimum", "avg": "average"}
_PLACES = ((3, 5), (7, 11), (17, -29))
"""Steps and starts of the sample points for factors: a curve through one point misses the next."""
MAX_LETTER = 4
"""Maximum characters of a letter with its index; longer names are words."""
SMALL_WORDS = frozenset({"the", "a", "an", "of", "with", "is", "are", "has", "have", "gets"})
"""Words without meaning in a name."""
_LETTER = re.compile(r"[a-zA-Z](?:_\d)?")
_ORDERED = {"<", "<=", ">", ">="}


class Comparing(Protocol):
    """The matcher's interface that these rules use."""

    def match(self, gold: Tree, answer: Tree) -> bool: ...
    def value(self, gold: Tree, answer: Tree) -> bool: ...
    def in_order(self, gold: Sequence[Tree], answer: Sequence[Tree]) -> bool: ...
    def any_order(self, gold: Sequence[Tree], answer: Sequence[Tree]) -> bool: ...


def right_side(tree: Tree) -> Tree | None:
    """The value in a named value's equation: `5` of `x = 5`; None for anything else."""
    if isinstance(tree, Rel) and set(tree.ops) <= _EQUAL and is_label(tree.terms[0]):
        return _last(tree)
    if isinstance(tree, Rel) and tree.ops == ("in",) and is_label(tree.terms[0]):
        return tree.terms[1] if isinstance(tree.terms[1], Node) and tree.terms[1].head == "set" else None
    if isinstance(tree, Node) and tree.head == "label":
        return right_side(tree.args[1]) or tree.args[1]
    if isinstance(tree, Node) and tree.head == "ratio" and len(tree.args) == 2:
        # `A: 3` names a value; `A : B` is a ratio.
        name, value = tree.args
        return value if isinstance(name, Sym) and name.name[0].isupper() and not symbols(value) else None
    return None


def stated(rel: Rel, other: Tree, of_answer: bool) -> Tree | None:
    r"""The value that an equation states; None if it states none.

    `x = 5` states 5 and `x = y = 5` does; so does `a + b = 5`, if it is the answer and the gold is a number. A chain of
    values that contradicts itself states nothing: `43 = 42` is not 42. Terms after `\approx` are ignored.
    """
    if rel.ops == ("equiv",) and is_label(rel.terms[0]):
        return rel.terms[1]
    if not set(rel.ops) <= _EQUAL:
        return None
    terms = _exact_terms(rel)
    if len(terms) == 1:
        return terms[0]
    first = terms[0]
    if is_label(first) or (of_answer and _is_combination(first) and not symbols(other)):
        return _last(rel) if _consistent(terms) else None
    if not symbols(rel) and _consistent(terms):
        return terms[-1]
    if of_answer and not symbols(terms[-1]) and not symbols(other) and not symbols(first):
        return None
    if symbols(first) and symbols(terms[-1]) and symbols(other) and _consistent_everywhere(terms):
        return terms[-1]
    return terms[-1] if is_label(terms[-1]) is False and isinstance(first, Words) else _flipped(terms)


def _is_combination(tree: Tree) -> bool:
    """Whether the left side combines several unknowns, as `a + b` does: `2x = 10` would have to be solved first.

    Only sums and products count: `x^2 + y^2 = 1` is a curve, and not the answer 1.
    """
    heads = {each.head for each in walk(tree) if isinstance(each, Node)}
    return len(symbols(tree)) > 1 and heads <= {"+", "*", "neg"} and not (isinstance(tree, Node) and tree.head == "neg")


def _flipped(terms: list[Tree]) -> Tree | None:
    """`5 = x` states 5 too."""
    return terms[0] if len(terms) == 2 and is_label(terms[1]) and not is_label(terms[0]) else None


def _exact_terms(rel: Rel) -> list[Tree]:
    for place, sign in enumerate(rel.ops):
        if (sign == "~" or _goes_on(*rel.terms[place : place + 2])) and not all(
            is_label(each) for each in rel.terms[: place + 1]
        ):
            return list(rel.terms[: place + 1])
    return list(rel.terms)


def _goes_on(before: Tree, tree: Tree) -> bool:
    """Whether a term is a decimal with dots behind it that begins with the digits of what stands before it."""
    shown = tree.args[0] if isinstance(tree, Node) and tree.head == "dots" else None
    value = approximate(before) if isinstance(shown, Num) and not symbols(before) else None
    if value is None or not isinstance(shown, Num):
        return False
    return bool(0 <= (value - float(shown.value)) * 10**shown.places < 1)


def _last(rel: Rel) -> Tree | None:
    last = _exact_terms(rel)[-1]
    return last if len(rel.terms) > 1 and last != rel.terms[0] else None


def _consistent(terms: Sequence[Tree]) -> bool:
    constants = [
        each for each in terms if not symbols(each) and not is_label(each) and isinstance(each, Num | Node | Sym)
    ]
    try:
        return all(same(constants[0], each) for each in constants[1:])
    except Unknown:
        return False


def _consistent_everywhere(terms: Sequence[Tree]) -> bool:
    """Whether a chain of expressions is an identity: `x^2 - 1 = (x-1)(x+1)`."""
    if any(isinstance(each, Words) or _structured(each) for each in terms):
        return False
    try:
        return all(same(terms[0], each) for each in terms[1:])
    except Unknown:
        return False


def assignments(matcher: Comparing, gold: Sequence[Tree], answer: Sequence[Tree]) -> bool | None:
    """Whether lists of named values match: by name if both have names, else in order; None if they are none."""
    groups = _grouped(gold, answer), _grouped(answer, gold)
    if (gold, answer) != groups:
        return matcher.any_order(*groups)
    left, right = [_named(each) for each in gold], [_named(each) for each in answer]
    named_left, named_right = all(name for name, _ in left), all(name for name, _ in right)
    if len(left) != len(right):
        return None
    if not (named_left or named_right):
        return matcher.any_order(gold, answer) if any(isinstance(each, Rel) for each in (*gold, *answer)) else None
    if any(isinstance(each, Rel) and not set(each.ops) <= _EQUAL for each in (*gold, *answer)):
        return None
    if named_left and named_right:
        names = [name for name, _ in left]
        if sorted(names) == sorted(name for name, _ in right) and len(set(names)) == len(names):
            given = dict(right)
            return all(matcher.match(value, given[name]) for name, value in left)
        return matcher.any_order(gold, answer)
    if all(isinstance(each, Rel) for each in (*gold, *answer)):
        return matcher.any_order(gold, answer)
    values = [value for _, value in left], [value for _, value in right]
    names = [name.partition("_")[0] for name, _ in (left if named_left else right)]
    if len(set(names)) < len(names):
        return matcher.any_order(*values)
    return matcher.in_order(*values) or _by_name(matcher, left, right, named_left)


def in_name_order(parts: Sequence[Tree]) -> list[Tree]:
    """Values of coordinates in the order of their letters: `y = 4, x = 3` is (3, 4); other parts as they are.

    Letters that follow each other in the alphabet, or one letter with indices: other names have no such order.
    """
    named = [_named(each) for each in parts]
    names = sorted(name for name, _ in named)
    if not all(_LETTER.fullmatch(name) for name in names) or len(set(names)) < len(names):
        return list(parts)
    places = [ord(name[0]) for name in names]
    if len(set(places)) > 1 and any(two - one != 1 for one, two in pairwise(places)):
        return list(parts)
    return [value for _, value in sorted(named, key=lambda pair: pair[0])]


def _grouped(named: Sequence[Tree], other: Sequence[Tree]) -> Sequence[Tree]:
    """`p = 2, q = 3, p = 3, q = 2` as two pairs, if the other side has pairs."""
    size = len(other[0].args) if isinstance(other[0], Node) and other[0].head == "()" else 0
    names = [name for name, _ in map(_named, named)]
    if size < 2 or len(named) != size * len(other) or not all(names):
        return named
    rows = [named[start : start + size] for start in range(0, len(named), size)]
    if any(sorted(names[:size]) != sorted(name for name, _ in map(_named, row)) for row in rows):
        return named
    return [Node("()", tuple(_named(each)[1] for each in in_name_order(row))) for row in rows]


def _by_name(matcher: Comparing, left: list[tuple[str, Tree]], right: list[tuple[str, Tree]], named_left: bool) -> bool:
    """In the order of the names: `y = 2, x = 1` for the gold `1, 2`."""
    named = sorted(left if named_left else right, key=lambda pair: pair[0])
    values = [value for _, value in named]
    if any(len(name) > MAX_LETTER for name, _ in named):
        # Words have no such order; where the answer alone has them, the gold's list has none at all.
        return not named_left and matcher.any_order([value for _, value in left], values)
    plain = [value for _, value in (right if named_left else left)]
    return matcher.in_order(values, plain) if named_left else matcher.in_order(plain, values)


def _named(tree: Tree) -> tuple[str, Tree]:
    """The name and the value of a named value; an empty name and the tree for anything else."""
    if isinstance(tree, Node) and tree.head == "label":
        return _name(tree.args[0]), tree.args[1]
    if isinstance(tree, Node) and tree.head in ("max", "min") and len(tree.args) == 1 and isinstance(tree.args[0], Num):
        # `max 5` names a value: of one number there is no maximum.
        return _IN_FULL.get(tree.head, tree.head), tree.args[0]
    value = right_side(tree)
    if value is None or not isinstance(tree, Rel | Node):
        return "", tree
    first = tree.terms[0] if isinstance(tree, Rel) else tree.args[0]
    return _name(first), value


def _name(tree: Tree) -> str:
    if isinstance(tree, Sym):
        return _IN_FULL.get(tree.name, tree.name)
    text = tree.text if isinstance(tree, Words) else str(tree)
    words = [_IN_FULL.get(word, word) for word in text.split()]
    return " ".join(word for word in words if word not in ("value", *SMALL_WORDS))


def both(matcher: Comparing, gold: Rel, answer: Rel) -> bool:
    """Whether two relations are equivalent."""
    if set(gold.ops) <= _EQUAL and set(answer.ops) <= _EQUAL:
        return _equations(matcher, gold, answer)
    if gold.ops[0] == answer.ops[0] == "in":
        return gold.terms[0] == answer.terms[0] and matcher.match(gold.terms[-1], answer.terms[-1])
    for candidate in (answer, _reversed(answer)):
        if candidate is not None and candidate.ops == gold.ops and matcher.in_order(gold.terms, candidate.terms):
            return True
    return len(gold.ops) == len(answer.ops) == 1 and _proportional(gold, answer)


def _reversed(rel: Rel) -> Rel | None:
    if not set(rel.ops) <= FLIPPED.keys():
        return None
    return Rel(tuple(FLIPPED[each] for each in reversed(rel.ops)), tuple(reversed(rel.terms)))


def _equations(matcher: Comparing, gold: Rel, answer: Rel) -> bool:
    one, two = gold.terms[0], answer.terms[0]
    names = _renaming(one, two)
    if names is not None and is_label(one) and is_label(two):
        # Working in the middle of a chain with the gold's own name is not judged: its last exact term is the answer.
        left, right = _last(gold), _last(answer)
        # f(w) = x is not a definition of f: the gold's variable would be another one in the answer.
        free = set(names.values()) - names.keys()
        if left is not None and right is not None:
            if not free.intersection(symbols(right)) and matcher.match(left, rename(right, names)):
                return True
            if set(symbols(one)).isdisjoint((*symbols(left), *symbols(right))):
                # Both give the name's value directly, so there is nothing to solve.
                return False
    if len(gold.terms) == len(answer.terms) > 2 and not all(map(is_label, (gold.terms[0], answer.terms[0]))):
        return matcher.any_order(gold.terms, answer.terms)
    if len(gold.terms) == len(answer.terms) == 2:
        if matcher.in_order(gold.terms, answer.terms) or matcher.in_order(gold.terms, answer.terms[::-1]):
            return True
        if not any(isinstance(each, Words) or _structured(each) for each in (*gold.terms, *answer.terms)):
            return _same_line(gold, answer) if _is_solution(gold) else _proportional(gold, answer)
    return False


def _is_solution(rel: Rel) -> bool:
    """Whether an equation only gives a name's number; an equation that still has to be solved is no such answer."""
    return isinstance(rel.terms[0], Sym) and rel.terms[0].name not in CONSTANTS and not symbols(rel.terms[1])


def _same_line(gold: Rel, answer: Rel) -> bool:
    """Whether an answer is a solution with everything on one side: `x - 3 = 0` for the line `x = 3`, not `2x = 6`."""
    if number(0) not in answer.terms:
        return False
    left, right = minus(*gold.terms), minus(*answer.terms)
    try:
        return same(left, right) or same(left, negative(right))
    except Unknown:
        return False


def _structured(tree: Tree) -> bool:
    return isinstance(tree, Rel) or (isinstance(tree, Node) and (tree.head in ROUND or tree.head in ("set", "matrix")))


def _renaming(gold: Tree, answer: Tree) -> dict[str, str] | None:
    """Names that turn the answer's variables into the gold's on both sides of the definition; None if they differ.

    `f(x) = x` and `f(z) = z` define the same function, `y = 2x` and `f(x) = 2x` the same line.
    """
    if gold == answer:
        return {}
    called = [isinstance(each, Node) and each.head.startswith("call:") for each in (gold, answer)]
    if all(called) and isinstance(gold, Node) and isinstance(answer, Node):
        plain = all(isinstance(each, Sym) for each in (*gold.args, *answer.args))
        if not plain or len(gold.args) != len(answer.args):
            return None
        if gold.head.casefold() != answer.head.casefold():
            return None
        pairs = list(zip(answer.args, gold.args, strict=True))
        return {one.name: two.name for one, two in pairs if isinstance(one, Sym) and isinstance(two, Sym)}
    if any(called):
        other, function = (answer, gold) if called[0] else (gold, answer)
        if isinstance(function, Node) and function.head == "call:slope":
            return {} if isinstance(other, Sym) and Sym(other.name.removesuffix("'")) == function.args[0] else None
        names = ("y", "z", *([function.head[5:]] if isinstance(function, Node) else []))
        return {} if isinstance(other, Sym) and other.name in names else None
    if isinstance(gold, Sym) and isinstance(answer, Sym):
        bare = gold.name.partition("_")[0] == answer.name.partition("_")[0]
        return {} if bare and ("_" in gold.name) != ("_" in answer.name) else None
    return None


def _proportional(gold: Rel, answer: Rel) -> bool:
    """Whether the two sides' differences are the same up to a constant factor, of the right sign for an inequality."""
    names = sorted(set(symbols(gold)) | set(symbols(answer)))
    if not names or not (gold.ops[0] == answer.ops[0] == "=" or {gold.ops[0], answer.ops[0]} <= _ORDERED):
        return False
    left, right = minus(*gold.terms), minus(*answer.terms)
    # A factor of parameters is one too: `x^2/a^2 + y^2/b^2 = 1` may be multiplied by them.
    turning = _COORDINATES.intersection(names) if gold.ops[0] == "=" else ()
    if any(each in CONSTANTS for each in names):
        return False
    for step, first in _PLACES:
        places = {
            name: number(step * place + first) for place, name in enumerate(names) if not turning or name in turning
        }
        fixed = [put(left, places), put(right, places)]
        signs = [approximate(each) if not symbols(each) else 1.0 for each in fixed]
        if all(signs):
            break
    else:
        return False
    if gold.ops[0] != "=":
        flipped = (signs[0] or 0.0) * (signs[1] or 0.0) < 0
        if gold.ops[0] != (FLIPPED[answer.ops[0]] if flipped else answer.ops[0]):
            return False
    try:
        return same(Node("*", (left, fixed[1])), Node("*", (right, fixed[0])))
    except Unknown:
        return False


def as_interval(rel: Rel, other: Tree) -> Tree | None:
    """`a < x < b` as the interval that it is, ends with variables included; `x in S` as S; None for anything else."""
    if rel.ops[0] == "in" and len(rel.ops) == 1:
        return rel.terms[1] if is_label(rel.terms[0]) else None
    if rel.ops[0] == "ni" and len(rel.ops) == 1:
        return rel.terms[0]
    if not (isinstance(other, Node) and other.head in ROUND and set(rel.ops) <= _ORDERED):
        return None
    if rel.ops[0][0] == ">":
        turned = _reversed(rel)
        return None if turned is None else as_interval(turned, other)
    if len(rel.ops) == 2 and is_label(rel.terms[1]) and rel.ops[1][0] == "<":
        opening, closing = ("[" if rel.ops[0] == "<=" else "("), ("]" if rel.ops[1] == "<=" else ")")
        return Node(opening + closing, (rel.terms[0], rel.terms[2]))
    if len(rel.ops) == 1 and is_label(rel.terms[0]):
        return Node("(" + ("]" if rel.ops[0] == "<=" else ")"), (negative(Sym("inf")), rel.terms[1]))
    if len(rel.ops) == 1 and is_label(rel.terms[1]):
        return Node(("[" if rel.ops[0] == "<=" else "(") + ")", (rel.terms[0], Sym("inf")))
    return None
