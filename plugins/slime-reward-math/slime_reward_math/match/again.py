r"""Again: rewrites for a second comparison of two answers that differ as written.

Example:

    again(read(r"3,4,\ldots,7"), read("3,4,5,6,7"))      # one pair: the five numbers, twice
    list(renamed(read(r"2n, n \in \mathbb{Z}"), read("2k")))      # 2n

Each rule simplifies one side: it expands dots, lists declared names, or renames parameters. The general rules then
compare the result.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from slime_reward_math.match import rewrites
from slime_reward_math.match.equations import right_side
from slime_reward_math.match.forms import LISTS, is_aside, is_domain, is_label, is_node, items, minus
from slime_reward_math.match.parts import SHAPE, without_condition
from slime_reward_math.match.piecewise import extremes
from slime_reward_math.match.quantities import added_up, clock, in_feet, with_unit
from slime_reward_math.tree import (
    Node,
    Num,
    Rel,
    Sym,
    Tree,
    Words,
    has_head,
    names_and_heads,
    put,
    rebuild,
    rename,
    symbols,
    walk,
)
from slime_reward_math.value.evaluate import approximate
from slime_reward_math.value.same import COUNTS, SIGNED, Unknown, same

_CONSTANTS = (Sym("C"), Sym("c"), Sym("K"))
_PLACES = (Fraction(1, 3), Fraction(5, 2), Fraction(29, 4))


def up_to_constant(tree: Tree, other: Tree) -> Tree:
    """One of the two, if both have the same constant of integration and differ by a constant; else the tree."""
    one, two = _expression(tree), _expression(other)
    bare, rest = _without_constant(one), _without_constant(two)
    if bare is None or rest is None or bare[1] != rest[1] or not _differ_by_constant(bare[0], rest[0]):
        return tree
    # The rule runs for both sides, which must choose the same tree.
    chosen = min(one, two, key=repr)
    return Rel(tree.ops, (*tree.terms[:-1], chosen)) if isinstance(tree, Rel) else chosen


def _expression(tree: Tree) -> Tree:
    return tree.terms[1] if isinstance(tree, Rel) and tree.ops == ("=",) and is_label(tree.terms[0]) else tree


def _without_constant(tree: Tree) -> tuple[Tree, Tree] | None:
    """A sum without its constant of integration, and that constant; None without exactly one."""
    if not (isinstance(tree, Node) and tree.head == "+"):
        return None
    constants = [each for each in tree.args if each in _CONSTANTS]
    terms = tuple(each for each in tree.args if each not in _CONSTANTS)
    if len(constants) != 1 or not terms or not SIGNED.issuperset(names := symbols(Node("+", terms))) or not names:
        return None
    return Node("+", terms), constants[0]


def _differ_by_constant(left: Tree, right: Tree) -> bool:
    difference = minus(left, right)
    names = symbols(difference)
    for place in _PLACES:
        fixed = put(difference, dict.fromkeys(names, Num(place)))
        if approximate(fixed) is None:
            continue
        try:
            return same(difference, fixed)
        except Unknown:
            return False
    return False


MAX_PARAMETERS = 3
"""Maximum parameters that are renamed, because every arrangement is tried."""
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
    """The value without conditions and without its name: `A x` of `y(x) = A x`."""
    parts = [without_condition(each) for each in items(tree) if not is_aside(each)]
    return (right_side(parts[0]) or parts[0]) if len(parts) == 1 else tree


def _bare(tree: Tree) -> Tree:
    return items(tree)[0]


def _constants(ours: list[str], theirs: list[str]) -> bool:
    for one, two in ((ours, theirs), (theirs, ours)):
        if all(map(_CONSTANT.fullmatch, one)) and all(map(_CONSTANT_TOO.fullmatch, two)):
            return True
    return False


def declared(tree: Tree) -> set[str]:
    """The names that a tree declares as any integer, any constant, or any count above a bound."""
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


_ANGULAR = frozenset({"sin", "cos", "tan"})
_CHOICES = frozenset("ABCDEFGHIJ")


def again(gold: Tree, answer: Tree, heads: set[str]) -> Iterator[tuple[Tree, Tree]]:
    """Equivalent pairs, none if no rewrite applies; `heads` is `heads_of` the two."""
    names: dict[str, None] = {}
    names_and_heads(gold, names, set())
    names_and_heads(answer, names, set())
    present = heads.union(names)
    rules = [rule for rule, wanted in RULES if not present.isdisjoint(wanted)]
    one, two = _plainer(gold, answer, rules), _plainer(answer, gold, rules)
    if rules and (one != gold or two != answer):
        yield one, two
    if names:
        for each in renamed(one, two):
            yield one, each


def _plainer(tree: Tree, other: Tree, rules: Sequence[Callable[[Tree, Tree], Tree]]) -> Tree:
    for rule in rules:
        tree = rule(tree, other)
    return tree


def _whole_parts(tree: Tree, other: Tree) -> Tree:
    """`[n/2]` as the floor of n/2, where the other side has a floor."""
    if not (has_head(other, "floor") and has_head(tree, "whole")):
        return tree

    def change(each: Tree) -> Tree | None:
        return Node("floor", each.args) if isinstance(each, Node) and each.head == "whole" else None

    return rebuild(tree, change)


def _mapped(tree: Tree, other: Tree) -> Tree:
    r"""`f: x \mapsto x^2` as `f(x) = x^2`."""
    if not (isinstance(tree, Rel) and tree.ops == ("to",) and isinstance(tree.terms[0], Node | Sym)):
        return tree
    name = tree.terms[0]
    if isinstance(name, Node) and name.head == "ratio" and len(name.args) == 2 and isinstance(name.args[0], Sym):
        return Rel(("=",), (Node(f"call:{name.args[0].name}", name.args[1:]), tree.terms[1]))
    return tree


def _gone_on(tree: Tree, other: Tree) -> Tree:
    r"""`\sin (n+1)\theta` as the sine of all that follows, where the other side has the sine of a product."""
    if not any(
        isinstance(each, Node) and each.head in _ANGULAR and is_node(each.args[0], ("*",)) for each in walk(other)
    ):
        return tree

    def change(each: Tree) -> Tree | None:
        if not (isinstance(each, Node) and each.head == "*"):
            return None
        for place, factor in enumerate(each.args[:-1]):
            if isinstance(factor, Node) and factor.head in _ANGULAR and is_node(factor.args[0], ("+",)):
                inner = Node("*", (factor.args[0], *each.args[place + 1 :]))
                return Node("*", (*each.args[:place], Node(factor.head, (inner,))))
        return None

    return rebuild(tree, change)


def _bare_angles(tree: Tree, other: Tree) -> Tree:
    r"""`\angle A` as A, where the other side names an angle by its letter alone."""
    if has_head(other, "call:angle"):
        return tree

    def change(each: Tree) -> Tree | None:
        return each.args[0] if isinstance(each, Node) and each.head == "call:angle" else None

    return rebuild(tree, change)


def _names_listed(tree: Tree, other: Tree) -> Tree:
    """`(a, b) = (2, 3)` as `a = 2, b = 3`, where the other side names its values."""
    if not (isinstance(tree, Rel) and tree.ops == ("=",) and any(isinstance(each, Rel) for each in items(other))):
        return tree
    names, values = tree.terms
    if not (isinstance(names, Node) and isinstance(values, Node) and names.head == values.head == "()"):
        return tree
    if len(names.args) != len(values.args) or not all(isinstance(each, Sym) for each in names.args):
        return tree
    return Node("list", tuple(Rel(("=",), pair) for pair in zip(names.args, values.args, strict=True)))


def _each_named(tree: Tree, other: Tree) -> Tree:
    """`x = y = z = 2` as `x = 2, y = 2, z = 2`, where the other side has as many values."""
    if not (isinstance(tree, Rel) and set(tree.ops) == {"="} and len(tree.ops) > 1):
        return tree
    *names, value = tree.terms
    count = len(other.args) if isinstance(other, Node) and other.head in (*LISTS, "()") else 0
    if len(names) != count or not all(isinstance(each, Sym) for each in names) or symbols(value):
        return tree
    return Node("list", tuple(Rel(("=",), (name, value)) for name in names))


def _letters(tree: Tree, other: Tree) -> Tree:
    """`ABD` as `A, B, D`: letters of choices in their order, where the other side lists letters."""
    if not (isinstance(tree, Node) and tree.head == "*" and is_node(other, LISTS)):
        return tree
    names = [each.name if isinstance(each, Sym) else "" for each in tree.args]
    if all(name.startswith("circled") for name in names):
        return Node("list", tree.args)
    ordered = names == sorted(set(names)) and _CHOICES.issuperset(names)
    return Node("list", tree.args) if ordered and _CHOICES.issuperset(symbols(other)) else tree


def _without_conditions(tree: Tree, other: Tree) -> Tree:
    r"""`2^k, k \ge 0` without its parameter's condition; an answer that is an inequality stays as it is."""
    if not (isinstance(tree, Node) and tree.head in LISTS):
        return tree
    conditions = [each for each in tree.args if isinstance(each, Rel) and each.ops[0] in _ORDER]
    values = [each for each in tree.args if each not in conditions]
    told = {name for each in values for name in symbols(_told(each))}
    if not values or any(isinstance(each, Words) for each in values):
        return tree
    if not conditions or not all(told.issuperset(symbols(each)) for each in conditions):
        return tree
    return values[0] if len(values) == 1 else Node(tree.head, tuple(values))


def _told(tree: Tree) -> Tree:
    return tree.terms[-1] if isinstance(tree, Rel) and is_label(tree.terms[0]) else tree


_ORDER = frozenset({"<", "<=", ">", ">=", "!="})
_SHAPED = frozenset({SHAPE})
RULES: tuple[tuple[Callable[[Tree, Tree], Tree], frozenset[str]], ...] = (
    (_mapped, _SHAPED),
    (_gone_on, _ANGULAR),
    (_whole_parts, frozenset({"whole"})),
    (_bare_angles, frozenset({"call:angle"})),
    (rewrites.written_out, frozenset({"ldots"})),
    (_names_listed, _SHAPED),
    (_each_named, _SHAPED),
    (_letters, _SHAPED),
    (_without_conditions, _SHAPED),
    (rewrites.enumerated, _SHAPED),
    (rewrites.closed, _SHAPED),
    (rewrites.congruent, frozenset({"residue"})),
    (rewrites.counted_alike, frozenset({"sum", "prod", "call:int"})),
    (rewrites.excluded, _SHAPED),
    (with_unit, frozenset({"unit", "Omega", "mu"})),
    (in_feet, frozenset({"deg", "call:prime"})),
    (added_up, _SHAPED),
    (clock, frozenset({"unit"})),
    (rewrites.without_arrows, frozenset({"call:vec", "call:hat"})),
    (rewrites.components, frozenset({"()", "matrix"})),
    (rewrites.scaled, frozenset({"()"})),
    (extremes, frozenset({"max", "min"})),
    (rewrites.identity, frozenset({"I", "I_2", "I_3", "I_4", "I_n"})),
    (rewrites.inverted, frozenset({"matrix"})),
    (rewrites.expanded, frozenset({"call:det", "matrix"})),
    (up_to_constant, frozenset({"C", "c", "K"})),
)
"""Rules that simplify their first tree if the second suggests it. One side must hold one of a rule's heads or names,
so that most rules are skipped for most pairs."""
