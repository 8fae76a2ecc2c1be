r"""Builders: sets that are told by a condition, written out or taken apart.

Example:

    enumerated(read(r"\{x \in \mathbb{Z} : 0 < x < 3\}"), other)      # {1, 2}
"""

import math
from collections.abc import Sequence

from slime_reward_math.match.forms import LISTS, is_domain, is_node
from slime_reward_math.match.regions import regions
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, has_head, number, rebuild, symbols
from slime_reward_math.value.approximate import exactly

MAX_WRITTEN = 100
"""Integers that are written out."""
_WHOLE = (Sym("ZZ"), Sym("NN"))


def enumerated(tree: Tree, other: Tree) -> Tree:
    """Integers between two bounds as the set that they are."""
    if isinstance(tree, Rel) and symbols(tree) in (["n"], ["N"]) and _counts(other):
        tree = Node("list", (Rel(("in",), (Sym(symbols(tree)[0]), Sym("ZZ"))), tree))
    parts = tree.args if isinstance(tree, Node) and tree.head in ("such", "list") else ()
    if (written := _listed(parts)) is not None and is_node(tree, ("such",)):
        return written
    domains = [each for each in parts if isinstance(each, Rel) and is_domain(each) and each.terms[-1] in _WHOLE]
    if not domains or not isinstance(tree, Node):
        return tree
    name = domains[0].terms[0]
    of = parts[0] if tree.head == "such" and _is_formula(parts[0], name) else None
    conditions = tuple(each for each in parts if each not in (domains[0], name, of))
    if domains[0].terms[-1] == Sym("NN"):
        # Whether the natural numbers begin with 0 or 1 is told by the other side.
        zero = isinstance(other, Node) and number(0) in other.args
        conditions = (*conditions, Rel((">=",), (name, number(0 if zero else 1))))
    if not conditions or not all(isinstance(each, Rel) and symbols(each) == symbols(name) for each in conditions):
        return tree
    found = regions(Node("and", conditions))
    pieces = found[0].pieces if len(found) > 0 else ()
    whole: list[int] = []
    for piece in pieces:
        low, high = (exactly(end.tree) if end.tree is not None else None for end in (piece.low, piece.high))
        if low is None or high is None or high - low > MAX_WRITTEN:
            return tree
        first = math.floor(low) + 1 if not piece.low_closed else math.ceil(low)
        last = math.ceil(high) - 1 if not piece.high_closed else math.floor(high)
        whole += range(first, last + 1)
    if not pieces or len(whole) > MAX_WRITTEN:
        return tree
    return Node(
        "set", tuple(map(number, whole)) if of is None else tuple(_put(of, name, number(each)) for each in whole)
    )


def _put(tree: Tree, name: Tree, value: Tree) -> Tree:
    """A formula at a place: `2n` at 3."""
    return rebuild(tree, lambda each: value if each == name else None)


def _listed(parts: Sequence[Tree]) -> Tree | None:
    """`3k` for `k = 1, 2, 3` as the set of three; None for anything else."""
    if len(parts) < 2 or not (
        isinstance(parts[1], Rel) and parts[1].ops == ("=",) and isinstance(parts[1].terms[0], Sym)
    ):
        return None
    name, values = parts[1].terms[0], (parts[1].terms[1], *parts[2:])
    if not all(isinstance(each, Num) for each in values) or not (parts[0] == name or _is_formula(parts[0], name)):
        return None
    return Node("set", tuple(_put(parts[0], name, value) for value in values))


def _is_formula(tree: Tree, name: Tree) -> bool:
    """Whether what a set-builder lists is a formula in one name: `2n`."""
    return not isinstance(tree, Rel) and tree != name and isinstance(name, Sym) and symbols(tree) == [name.name]


def _counts(tree: Tree) -> bool:
    r"""Whether a side lists integers: `n \in \{1, 2\}`; only beside one is an inequality for n about integers."""
    found = tree.terms[-1] if isinstance(tree, Rel) and tree.ops == ("in",) else tree
    return isinstance(found, Node) and found.head == "set" and all(exactly(each) is not None for each in found.args)


def excluded(tree: Tree, other: Tree) -> Tree:
    r"""`x \ne k\pi, k \in \mathbb{Z}` as the set of such x, where the other side is a set-builder."""
    if not (is_node(tree, LISTS) and isinstance(tree, Node) and has_head(other, "such")):
        return tree
    first, *rest = tree.args
    if (
        isinstance(first, Rel)
        and first.ops == ("!=",)
        and isinstance(first.terms[0], Sym)
        and all(map(is_domain, rest))
    ):
        return Node("such", (first.terms[0], first, *rest))
    return tree
