r"""Again: what is looked at a second time when two answers differ as they are written.

Example:

    again(read(r"3,4,\ldots,7"), read("3,4,5,6,7"))      # one pair: the five numbers, twice

Each rule writes a side in a plainer way: dots written out, declared names listed, parameters renamed. Whatever comes of
it is compared as if it had been written so, by the rules that compare everything.
"""

from collections.abc import Callable, Iterator, Sequence

from slime_reward_math.match.antiderivatives import up_to_constant
from slime_reward_math.match.builders import enumerated, excluded
from slime_reward_math.match.congruences import congruent, counted_alike
from slime_reward_math.match.counts import closed
from slime_reward_math.match.determinants import expanded, identity, inverted
from slime_reward_math.match.dots import written_out
from slime_reward_math.match.forms import LISTS, is_label, is_node, items
from slime_reward_math.match.lengths import in_feet
from slime_reward_math.match.measures import added_up, clock, with_unit
from slime_reward_math.match.parameters import renamed
from slime_reward_math.match.parts import SHAPE
from slime_reward_math.match.piecewise import extremes
from slime_reward_math.match.vectors import components, scaled, without_arrows
from slime_reward_math.tree import Node, Rel, Sym, Tree, Words, has_head, names_and_heads, rebuild, symbols, walk

_ANGULAR = frozenset({"sin", "cos", "tan"})
_CHOICES = frozenset("ABCDEFGHIJ")


def again(gold: Tree, answer: Tree, heads: set[str]) -> Iterator[tuple[Tree, Tree]]:
    """Pairs that say what the two said; none where nothing can be written otherwise.

    Args:
        gold: the gold's tree.
        answer: the answer's tree.
        heads: `heads_of` the two.
    """
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
    r"""`2^k, k \ge 0` without what is said of its parameter; an inequality that is an answer has no such value."""
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
    """What a named value is, and anything else as it is."""
    return tree.terms[-1] if isinstance(tree, Rel) and is_label(tree.terms[0]) else tree


_ORDER = frozenset({"<", "<=", ">", ">=", "!="})
_SHAPED = frozenset({SHAPE})
RULES: tuple[tuple[Callable[[Tree, Tree], Tree], frozenset[str]], ...] = (
    (_mapped, _SHAPED),
    (_gone_on, _ANGULAR),
    (_whole_parts, frozenset({"whole"})),
    (_bare_angles, frozenset({"call:angle"})),
    (written_out, frozenset({"ldots"})),
    (_names_listed, _SHAPED),
    (_each_named, _SHAPED),
    (_letters, _SHAPED),
    (_without_conditions, _SHAPED),
    (enumerated, _SHAPED),
    (closed, _SHAPED),
    (congruent, frozenset({"residue"})),
    (counted_alike, frozenset({"sum", "prod", "call:int"})),
    (excluded, _SHAPED),
    (with_unit, frozenset({"unit", "Omega", "mu"})),
    (in_feet, frozenset({"deg", "call:prime"})),
    (added_up, _SHAPED),
    (clock, frozenset({"unit"})),
    (without_arrows, frozenset({"call:vec", "call:hat"})),
    (components, frozenset({"()", "matrix"})),
    (scaled, frozenset({"()"})),
    (extremes, frozenset({"max", "min"})),
    (identity, frozenset({"I", "I_2", "I_3", "I_4", "I_n"})),
    (inverted, frozenset({"matrix"})),
    (expanded, frozenset({"call:det", "matrix"})),
    (up_to_constant, frozenset({"C", "c", "K"})),
)
"""Each writes its first tree in a plainer way, if there is one that the second suggests; with heads and names of which
one side has to hold one, so that most pairs are not asked about most rules."""
