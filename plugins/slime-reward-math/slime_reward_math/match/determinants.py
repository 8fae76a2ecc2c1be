r"""Determinants: `|1 2; 3 4|` as the sum of products that it stands for.

Example:

    expanded(read(r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"), other)      # 1*4 - 2*3
"""

from slime_reward_math.match.forms import negative
from slime_reward_math.tree import Node, Tree, has_head, rebuild

MAX_ROWS = 4
"""Of a determinant that is expanded: 24 products of four."""


def expanded(tree: Tree, other: Tree) -> Tree:
    """The tree with its determinants as sums of products."""
    if not (has_head(tree, "call:det") or (has_head(tree, "abs") and has_head(tree, "matrix"))):
        return tree
    return rebuild(tree, _change)


def _change(tree: Tree) -> Tree | None:
    if not isinstance(tree, Node) or tree.head not in ("call:det", "abs"):
        return None
    inner = tree.args[0]
    args = inner.args if len(tree.args) == 1 and isinstance(inner, Node) and inner.head == "matrix" else tree.args
    rows = [row.args for row in args if isinstance(row, Node) and row.head == "row"]
    square = 0 < len(rows) <= MAX_ROWS and len(rows) == len(args) and all(len(row) == len(rows) for row in rows)
    return _expansion(rows) if square else None


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
