"""Accessors for parts of trees, and the matcher's rules for ratios, numerals, residues and truncated decimals.

Example:

    vector(matrix)      # the entries of a matrix with one row or one column
    ratio(matcher, read("1:2:3"), read("2:4:6"))      # True
"""

from fractions import Fraction

from slime_reward_math.match import equations
from slime_reward_math.match.forms import LISTS, SHAPES, is_aside, is_node, minus, spread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number, symbols
from slime_reward_math.value.evaluate import approximate

DECIMAL, SHAPE = ".", "#"
"""Extra heads: some number has a decimal point; something has no value."""


_WORDED = ("said", "noted")
_ABOUT = frozenset({"approximately", "about", "approx", "roughly", "in decimal form"})


def shapes(tree: Tree) -> bool:
    """Whether an expression contains something without a value: a bracket, a matrix, a relation, words."""
    if isinstance(tree, Words | Rel):
        return True
    if not isinstance(tree, Node) or tree.head.startswith("call:"):
        return False
    return tree.head in SHAPES or any(shapes(each) for each in tree.args)


def items_of(tree: Tree) -> tuple[Tree, ...]:
    """A node's arguments; nothing for anything else."""
    return tree.args if isinstance(tree, Node) else ()


def plain_words(tree: Tree) -> str | None:
    """The text of a words tree, or a symbol's name."""
    if isinstance(tree, Words):
        return " ".join(word for word in tree.text.split() if word not in ("the", "a", "an"))
    return tree.name.lower() if isinstance(tree, Sym) and len(tree.name) > 1 else None


def said(tree: Tree) -> str:
    """A label's text without articles and small words."""
    words = tree.text.split() if isinstance(tree, Words) else []
    return " ".join(word for word in words if word not in equations.SMALL_WORDS)


def is_point(tree: Tree) -> bool:
    """Whether a point has its name before its coordinates: `A(1, 2)`."""
    named = isinstance(tree, Node) and tree.head.startswith("call:") and tree.head[5:].isupper() and len(tree.head) == 6
    return named and len(items_of(tree)) > 1


def named_once(parts: list[Tree]) -> list[Tree]:
    """`n = 1, 2, 3` without the name that all of them share."""
    value = equations.right_side(parts[0])
    first = parts[0]
    if isinstance(first, Rel) and first.ops == ("!=",) and not any(isinstance(each, Rel) for each in parts[1:]):
        return [first, *(Rel(("!=",), (first.terms[0], each)) for each in parts[1:])]
    if len(parts) > 1 and value is not None and not any(isinstance(each, Rel) or _labels(each) for each in parts[1:]):
        return [value, *parts[1:]]
    return parts


def _labels(tree: Tree) -> bool:
    return isinstance(tree, Node) and tree.head == "label"


def exactly_said(parts: list[Tree]) -> list[Tree]:
    r"""`3/7, \text{approximately } 0.43` without the parts that are marked as approximations of others."""
    about = [isinstance(label_of(each), Words) and said(label_of(each)) in _ABOUT for each in parts]
    exact = [each for each, rough in zip(parts, about, strict=True) if not rough]
    asides = [labelled(each) for each, rough in zip(parts, about, strict=True) if rough]
    return exact if exact and all(any(_rounded(aside, each) for each in exact) for aside in asides) else parts


def _rounded(aside: Tree, exact: Tree) -> bool:
    """Whether an approximation is one of an exact value: within one of its last digit, where both have a value."""
    value = equations.right_side(exact) or exact
    if not isinstance(aside, Num) or symbols(value) or isinstance(value, Words) or shapes(value):
        return True
    found = approximate(value)
    return found is None or abs(found - float(aside.value)) < 10.0**-aside.places


def relisted(tree: Tree, parts: list[Tree]) -> Tree:
    """A list with its items replaced by `parts`."""
    return Node(tree.head if isinstance(tree, Node) and tree.head in LISTS else "list", tuple(parts))


def without_condition(tree: Tree) -> Tree:
    """The tree without the condition behind it."""
    return tree.args[0] if isinstance(tree, Node) and tree.head == "given" else tree


def label_of(tree: Tree) -> Tree:
    """The label before a value; the tree itself without one."""
    return tree.args[0] if isinstance(tree, Node) and tree.head == "label" else tree


def labelled(tree: Tree) -> Tree:
    """The tree without the label before it."""
    return tree.args[1] if isinstance(tree, Node) and tree.head == "label" else tree


def spreads(tree: Tree) -> list[list[Tree]]:
    """The plus-minus readings of an answer: for a list, of each item."""
    listed = isinstance(tree, Node) and tree.head in (*LISTS, "set")
    parts = [each for each in items_of(tree) if not is_aside(each)] if listed else [tree]
    together: list[Tree] = []
    apart: list[Tree] = []
    for each in parts:
        found = spread(each)
        together += found[0]
        apart += found[-1]
    return [together] if len(together) == len(apart) else [together, apart]


def vector(found: Node) -> tuple[Tree, ...] | None:
    """The entries of a matrix with one row or one column."""
    rows = [items_of(each) for each in found.args]
    if len(rows) == 1:
        return rows[0]
    return tuple(row[0] for row in rows) if all(len(row) == 1 for row in rows) else None


def sums_degrees(tree: Tree) -> bool:
    """Whether some term of a sum is in degrees."""
    if isinstance(tree, Node) and tree.head in ("+", "neg", "*", "/"):
        return any(sums_degrees(each) for each in tree.args)
    return is_node(tree, ("deg",))


def heads_of(tree: Tree) -> set[str]:
    """Every head in a tree, and the heads that its units may turn into."""
    found: set[str] = set()
    _heads(tree, found)
    if "unit" in found:
        found |= {"deg", "percent", DECIMAL}
    if not found.isdisjoint(SHAPES):
        found.add(SHAPE)
    return found


def _heads(tree: Tree, found: set[str]) -> None:
    if isinstance(tree, Node):
        found.add(tree.head)
        for each in tree.args:
            _heads(each, found)
    elif isinstance(tree, Num):
        if tree.places:
            found.add(DECIMAL)
    elif not isinstance(tree, Sym):
        found.add(SHAPE)
        if isinstance(tree, Rel):
            for each in tree.terms:
                _heads(each, found)


def alike(matcher: equations.Comparing, gold: Tree, answer: Tree) -> bool:
    """Whether two values in words that are not understood are equal: same words, same value.

    A gold with a note behind it (`17 in words`) is compared without the note.
    """
    if isinstance(gold, Node) and gold.head == "noted" and not (isinstance(answer, Node) and answer.head in _WORDED):
        return matcher.match(gold.args[1], answer)
    if not (isinstance(gold, Node) and isinstance(answer, Node) and gold.head == answer.head):
        return False
    return plain_words(gold.args[0]) == plain_words(answer.args[0]) and matcher.match(gold.args[1], answer.args[1])


def ratio(matcher: equations.Comparing, gold: Tree, answer: Tree) -> bool:
    """Quotients, or proportions of three and more; a name before a colon has a value."""
    if not (is_node(gold, ("ratio",)) and is_node(answer, ("ratio",))):
        named = equations.right_side(gold), equations.right_side(answer)
        if named != (None, None):
            return matcher.match(named[0] or gold, named[1] or answer)
    if is_node(gold, ("ratio",)) and is_node(answer, ("ratio",)) and len(items_of(gold)) > 2:
        left, right = items_of(gold), items_of(answer)
        pairs = zip(left[1:], right[1:], strict=False)
        cross = [(Node("*", (one, right[0])), Node("*", (two, left[0]))) for one, two in pairs]
        return len(left) == len(right) and all(matcher.value(one, two) for one, two in cross)
    if any(is_node(each, ("ratio",)) and items_of(each)[-1] == number(0) for each in (gold, answer)):
        return len(items_of(gold)) == len(items_of(answer)) and matcher.in_order(items_of(gold), items_of(answer))
    return matcher.value(gold, answer)


def based(matcher: equations.Comparing, gold: Tree, answer: Tree) -> bool:
    """Numerals: the same digits in the same base; an answer may leave out its base, and add no other than ten."""
    left, right = items_of(gold), items_of(answer)
    if is_node(gold, ("base",)) and is_node(answer, ("base",)):
        return matcher.in_order(left, right) or matcher.value(gold, answer)
    digits, other = (left[0], answer) if is_node(gold, ("base",)) else (right[0], gold)
    if isinstance(digits, Words):
        return digits.text == _spelled(other)
    if other is gold and right[1] != number(10):
        return False
    return matcher.match(digits, other) if other is answer else matcher.match(other, digits)


def _spelled(tree: Tree) -> str:
    """`2A` that was read as a product, as it was written."""
    parts = tree.args if isinstance(tree, Node) and tree.head == "*" else (tree,)
    return "".join(each.name if isinstance(each, Sym) else str(getattr(each, "value", "?")) for each in parts).lower()


def residue(matcher: equations.Comparing, gold: Tree, answer: Tree) -> bool:
    """Residue classes: the same modulus, and values that differ by a multiple of it; the modulus may be missing."""
    left, right = _class(gold), _class(answer)
    if left is None or right is None:
        value, other = (left, answer) if left is not None else (right, gold)
        if value is None:
            return False
        if matcher.match(value[0], other) if other is answer else matcher.match(other, value[0]):
            return True
        return _least(*value) is not None and _least(*value) == _least(other, value[1])
    if not matcher.match(left[1], right[1]):
        return False
    apart = Node("mod", (minus(left[0], right[0]), left[1]))
    return matcher.match(left[0], right[0]) or (
        all(isinstance(each, Num) for each in (*left, *right)) and matcher.value(number(0), apart)
    )


def _least(value: Tree, modulus: Tree) -> Fraction | None:
    """The least residue of a number no larger than the modulus; None for anything else."""
    if not (isinstance(value, Num) and isinstance(modulus, Num)) or abs(value.value) > abs(modulus.value) > 0:
        return None
    return value.value % modulus.value if modulus.value else None


def _class(tree: Tree) -> tuple[Tree, Tree] | None:
    if isinstance(tree, Node) and tree.head in ("residue", "mod") and len(tree.args) == 2:
        return tree.args[0], tree.args[1]
    return None
