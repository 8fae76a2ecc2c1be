r"""Determinants: `|1 2; 3 4|` as the sum of products that it stands for, and inverses of matrices by them.

Example:

    expanded(read(r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"), other)      # 1*4 - 2*3
"""

from slime_reward_math.match.forms import matrix, negative
from slime_reward_math.tree import Node, Sym, Tree, has_head, number, rebuild

MAX_ROWS = 4
"""Of a determinant that is expanded: 24 products of four."""


def expanded(tree: Tree, other: Tree) -> Tree:
    """The tree with its determinants as sums of products."""
    if not (has_head(tree, "call:det") or (has_head(tree, "abs") and has_head(tree, "matrix"))):
        return tree
    return rebuild(tree, _change)


def identity(tree: Tree, other: Tree) -> Tree:
    """The tree with `I` or `I_2` as the identity matrix, where the other side is a square one."""
    whole = matrix(other)
    rows = _square(whole.args) if whole is not None else None
    if not rows or has_head(tree, "matrix"):
        return tree
    size = range(len(rows))
    unit = Node("matrix", tuple(Node("row", tuple(number(int(row == at)) for at in size)) for row in size))
    names = {"I", f"I_{len(rows)}", "I_n"}
    return rebuild(tree, lambda each: unit if isinstance(each, Sym) and each.name in names else None)


def inverted(tree: Tree, other: Tree) -> Tree:
    r"""The tree with `M^{-1}` as the matrix that it is: signed minors, mirrored, over the determinant."""
    return rebuild(tree, _inverse)


def _inverse(tree: Tree) -> Tree | None:
    if not (isinstance(tree, Node) and tree.head == "^" and _is_minus_one(tree.args[1])):
        return None
    found = matrix(tree.args[0])
    rows = _square(found.args) if found is not None else None
    if not rows:
        return None
    below = _expansion(rows)
    size = range(len(rows))
    return Node("matrix", tuple(Node("row", tuple(_cofactor(rows, at, row, below) for at in size)) for row in size))


def _is_minus_one(tree: Tree) -> bool:
    return tree in (number(-1), negative(number(1)), Node("neg", (number(1),)))


def _cofactor(rows: list[tuple[Tree, ...]], row: int, column: int, below: Tree) -> Tree:
    """A signed minor over the determinant."""
    rest = [(*each[:column], *each[column + 1 :]) for at, each in enumerate(rows) if at != row]
    minor = _expansion(rest) if rest else number(1)
    return Node("/", (negative(minor) if (row + column) % 2 else minor, below))


def _square(args: tuple[Tree, ...]) -> list[tuple[Tree, ...]] | None:
    """The rows of a small square matrix; None for anything else."""
    rows = [row.args for row in args if isinstance(row, Node) and row.head == "row"]
    square = 0 < len(rows) <= MAX_ROWS and len(rows) == len(args) and all(len(row) == len(rows) for row in rows)
    return rows if square else None


def _change(tree: Tree) -> Tree | None:
    if not isinstance(tree, Node) or tree.head not in ("call:det", "abs"):
        return None
    inner = tree.args[0]
    args = inner.args if len(tree.args) == 1 and isinstance(inner, Node) and inner.head == "matrix" else tree.args
    rows = _square(args)
    return None if rows is None else _expansion(rows)


def _expansion(rows: list[tuple[Tree, ...]]) -> Tree:
    """A determinant by its first row."""
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Tree] = []
    for place, factor in enumerate(rows[0]):
        minor = _expansion([(*row[:place], *row[place + 1 :]) for row in rows[1:]])
        product = Node("*", (factor, minor))
        terms.append(negative(product) if place % 2 else product)
    return Node("+", tuple(terms))
