r"""Vectors: with and without their arrows, as tuples, scaled tuples and sums over the unit vectors i, j, k.

Example:

    components(read(r"3\mathbf{i}-4\mathbf{j}"), read("(3,-4)"))      # (3, -4)
"""

from slime_reward_math.match.equations import right_side
from slime_reward_math.tree import Node, Sym, Tree, has_head, number, rebuild, symbols
from slime_reward_math.value.same import Unknown, same

_ARROWS = ("call:vec", "call:hat")
_BASIS = ("i", "j", "k")


def without_arrows(tree: Tree, other: Tree) -> Tree:
    r"""`\vec{a}` as `a`, where the other side has no arrows; the arrow over two letters says which comes first."""
    if not any(has_head(tree, head) for head in _ARROWS) or any(has_head(other, head) for head in _ARROWS):
        return tree

    def change(each: Tree) -> Tree | None:
        arrow = isinstance(each, Node) and each.head in _ARROWS and isinstance(each.args[0], Sym)
        return each.args[0] if arrow and isinstance(each, Node) else None

    return rebuild(tree, change)


def components(tree: Tree, other: Tree) -> Tree:
    """A sum over unit vectors as a tuple, where the other side is one or a column."""
    size = _size(right_side(other) or other)
    if size not in (2, 3) or not isinstance(tree, Node) or tree.head not in ("+", "*", "neg", "/"):
        return tree
    if not {"j", "k"}.intersection(symbols(tree)):
        return tree
    found = tuple(_at(tree, tuple(int(place == axis) for axis in range(3))) for place in range(3))
    try:
        linear = same(_at(tree, (0, 0, 0)), number(0)) and same(_at(tree, (1, 1, 1)), Node("+", found))
        return Node("()", found[:size]) if linear and (size == 3 or same(found[2], number(0))) else tree
    except Unknown:
        return tree


def scaled(tree: Tree, other: Tree) -> Tree:
    r"""`\frac15(3,4)` with its factor in every place, where the other side is a tuple or a column of as many."""
    if not isinstance(tree, Node) or tree.head not in ("*", "/", "neg"):
        return tree
    places = [place for place, each in enumerate(tree.args) if has_head(each, "()")]
    if len(places) != 1 or (tree.head == "/" and places != [0]):
        return tree
    core = scaled(tree.args[places[0]], other)
    if not isinstance(core, Node) or core.head != "()" or len(core.args) != _size(right_side(other) or other):
        return tree

    def entry(each: Tree) -> Tree:
        return Node(tree.head, tuple(each if place in places else arg for place, arg in enumerate(tree.args)))

    return Node("()", tuple(map(entry, core.args)))


def _size(tree: Tree) -> int:
    if not isinstance(tree, Node):
        return 0
    column = tree.head == "matrix" and all(isinstance(row, Node) and len(row.args) == 1 for row in tree.args)
    return len(tree.args) if tree.head == "()" or column else 0


def _at(tree: Tree, values: tuple[int, ...]) -> Tree:
    places = dict(zip(_BASIS, values, strict=True))

    def change(each: Tree) -> Tree | None:
        if isinstance(each, Node) and each.head in _ARROWS:
            each = each.args[0]
        return number(places[each.name]) if isinstance(each, Sym) and each.name in places else None

    return rebuild(tree, change)
