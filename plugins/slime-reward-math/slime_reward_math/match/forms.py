r"""Forms: converts trees to equivalent notations.

Example:

    spread(read(r"1 \pm x"))       # both 1 + x and 1 - x
"""

from collections.abc import Iterable

from slime_reward_math.tree import CONSTANTS, Node, Num, Rel, Sym, Tree, Words, has_head, rebuild, rename, walk
from slime_reward_math.value.evaluate import approximate

LISTS = frozenset({"list", "and", "or"})
"""Heads of enumerations."""
ROUND = frozenset({"()", "[]", "(]", "[)"})
"""Heads of tuples and intervals."""
SETS = frozenset({"set", "union", "meet", "minus", "such"}) | ROUND
"""Heads of trees that may be sets of reals."""
SHAPES = SETS | LISTS | {"matrix", "row", "cases", "given", "label", "said", "noted"}
"""Heads of trees without a value."""
DOMAINS = frozenset({"ZZ", "NN", "RR", "QQ", "CC"})
"""Domains of parameters."""
MAX_SIGNS = 5
"""Maximum independent plus-minus signs that are expanded: 32 values."""


def items(tree: Tree) -> tuple[Tree, ...]:
    """The items of an enumeration, nested ones included; the tree alone if it is none."""
    if isinstance(tree, Node) and tree.head in LISTS:
        return tuple(item for each in tree.args for item in items(each))
    return (tree,)


def is_node(tree: Tree, heads: Iterable[str]) -> bool:
    """Whether the tree is a node with one of these heads."""
    return isinstance(tree, Node) and tree.head in heads


def is_domain(tree: Tree) -> bool:
    r"""Whether a clause only gives a parameter's domain: `k \in \mathbb{Z}`."""
    if not (isinstance(tree, Rel) and set(tree.ops) <= {"in"}):
        return False
    last = tree.terms[-1]
    names = items(tree.terms[0])
    return (
        isinstance(last, Sym)
        and (last.name in DOMAINS or last.name in ("Z", "N", "R", "Q"))
        and all(isinstance(each, Sym) for each in names)
    )


def is_aside(tree: Tree) -> bool:
    """Whether a clause is not an answer but a condition or a domain."""
    return is_domain(tree) or (isinstance(tree, Node) and tree.head == "given" and len(tree.args) == 1)


def spread(tree: Tree) -> list[list[Tree]]:
    """Readings of a tree's plus-minus signs: all with one sign, and each independently if there are several."""
    signs = [each for each in walk(tree) if isinstance(each, Node) and each.head in ("pm", "mp")]
    if not signs:
        return [[tree]]
    together = [_signed(tree, [flip] * len(signs)) for flip in (1, -1)]
    if len(signs) == 1 or len(signs) > MAX_SIGNS:
        return [together]
    choices = [[1 if code >> place & 1 else -1 for place in range(len(signs))] for code in range(2 ** len(signs))]
    return [together, [_signed(tree, choice) for choice in choices]]


def _signed(tree: Tree, choice: list[int]) -> Tree:
    left = list(choice)

    def change(each: Tree) -> Tree | None:
        if isinstance(each, Node) and each.head in ("pm", "mp"):
            sign = left.pop(0) * (1 if each.head == "pm" else -1)
            inner = rebuild(each.args[0], change)
            return inner if sign > 0 else negative(inner)
        return None

    return rebuild(tree, change)


def is_interval(tree: Tree) -> bool:
    """Whether a bracket like `[2, 5]` is an interval and no list: two numbers that grow."""
    if not (isinstance(tree, Node) and tree.head == "[]" and len(tree.args) == 2):
        return False
    low, high = map(approximate, tree.args)
    return low is not None and high is not None and low < high


def negative(tree: Tree) -> Tree:
    """Minus the tree; of a tuple, minus each of its entries."""
    if isinstance(tree, Node) and tree.head == "()":
        return Node("()", tuple(map(negative, tree.args)))
    if isinstance(tree, Num):
        return Num(-tree.value, tree.places, tree.digits)
    return tree.args[0] if isinstance(tree, Node) and tree.head == "neg" else Node("neg", (tree,))


def minus(left: Tree, right: Tree) -> Tree:
    """Left minus right."""
    return Node("+", (left, negative(right)))


def infinite(tree: Tree) -> int:
    """1 for infinity, -1 for minus infinity, 0 for anything else."""
    if isinstance(tree, Sym):
        return int(tree.name == "inf")
    return -1 if isinstance(tree, Node) and tree.head == "neg" and tree.args[0] == Sym("inf") else 0


def is_label(tree: Tree) -> bool:
    r"""Whether the left side of an equation is a name for the right side: `x`, `f(2)`, `|AB|`, `S_1 : S_2`."""
    if isinstance(tree, Sym):
        return tree.name not in CONSTANTS or tree.name == "e"
    if isinstance(tree, Words):
        return True
    if not isinstance(tree, Node):
        return False
    if tree.head.startswith("call:"):
        return True
    if tree.head in ("max", "min", "det", "log", "sin", "cos", "tan"):
        return not any(isinstance(each, Num) for each in tree.args[:1])
    if tree.head in ("*", "meet", "union"):
        return all(isinstance(each, Sym) and each.name not in CONSTANTS for each in tree.args)
    if tree.head in ("abs", "ratio", "/", "[]", "unit") or tree.head in ROUND:
        return bool(tree.args) and all(map(is_label, tree.args))
    return False


def matrix(tree: Tree) -> Node | None:
    """The tree as a matrix: one with scalar factors multiplied in, or brackets within brackets; else None."""
    if isinstance(tree, Node) and tree.head == "matrix":
        return tree
    if isinstance(tree, Node) and tree.head == "[]" and all(is_node(each, ("[]",)) for each in tree.args):
        return Node("matrix", tuple(Node("row", each.args) for each in tree.args if isinstance(each, Node)))
    if isinstance(tree, Node) and tree.head in ("*", "/", "neg") and has_head(tree, "matrix"):
        return _scaled(tree)
    if isinstance(tree, Node) and tree.head == "^" and tree.args[1] in (Sym("T"), Sym("top")):
        return _transposed(matrix(tree.args[0]))
    return None


def _transposed(found: Node | None) -> Node | None:
    rows = [row.args for row in found.args if isinstance(row, Node)] if found is not None else []
    if not rows or len({len(row) for row in rows}) > 1:
        return None
    return Node("matrix", tuple(Node("row", column) for column in zip(*rows, strict=True)))


def _scaled(tree: Node) -> Node | None:
    inner = [place for place, each in enumerate(tree.args) if has_head(each, "matrix")]
    if len(inner) != 1 or (tree.head == "/" and inner != [0]):
        return None
    core = matrix(tree.args[inner[0]])
    if core is None:
        return None

    def entry(each: Tree) -> Tree:
        return Node(tree.head, tuple(each if place in inner else arg for place, arg in enumerate(tree.args)))

    return Node("matrix", tuple(Node("row", tuple(map(entry, row.args))) for row in core.args if isinstance(row, Node)))


def element_of(tree: Tree) -> Tree | None:
    r"""The element of a set-builder whose conditions only define it and its parameter's domain: `3k`; else None."""
    found = canonical_conditions(tree)
    if found is None or not all(map(is_domain, found[1])):
        return None
    return found[0]


def canonical_conditions(tree: Tree) -> tuple[Tree, list[Tree]] | None:
    """The element and the conditions of a set-builder, `x = 3k` put in the element's place; None for anything else."""
    if not (isinstance(tree, Node) and tree.head == "such"):
        return None
    element, *conditions = tree.args
    if isinstance(element, Rel) and element.ops == ("in",):
        conditions.append(element)
        element = element.terms[0]
    for each in conditions:
        if isinstance(each, Rel) and each.ops == ("=",) and each.terms[0] == element:
            conditions.remove(each)
            element = each.terms[1]
            break
    return element, conditions


def canonical_names(tree: Tree) -> Tree:
    """A set-builder tree with its variables named in order of appearance, `x = 3k` put in the element's place."""
    parts = canonical_conditions(tree)
    if parts is None:
        return tree
    found = Node("such", (parts[0], *parts[1]))
    names = {each.name: None for each in walk(found) if isinstance(each, Sym) and each.name not in CONSTANTS}
    numbered = {name: f"v{place}" for place, name in enumerate(names)}

    return rename(found, numbered)
