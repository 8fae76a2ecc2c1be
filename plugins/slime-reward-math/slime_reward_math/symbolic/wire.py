"""Trees on their way to a child process and back: nested JSON lists, bounded in size.

Example:

    unpacked(packed(tree)) == tree
"""

from fractions import Fraction
from typing import TypeAlias

from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, walk

MAX_NODES = 300
"""Of one tree; larger ones are not sent."""
MAX_BITS = 4_000
"""Of one number."""
Packed: TypeAlias = list["str | Packed"]
"""A kind, then what it is made of."""


def packed(tree: Tree) -> Packed | None:
    """The tree as lists; None for one that is too large."""
    for place, each in enumerate(walk(tree)):
        if place >= MAX_NODES or (isinstance(each, Num) and _bits(each.value) > MAX_BITS):
            return None
    return _packed(tree)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _packed(tree: Tree) -> Packed:
    if isinstance(tree, Num):
        return ["num", f"{tree.value.numerator:x}", f"{tree.value.denominator:x}"]
    if isinstance(tree, Sym):
        return ["sym", tree.name]
    if isinstance(tree, Words):
        return ["words", tree.text]
    if isinstance(tree, Rel):
        return ["rel", list(tree.ops), *map(_packed, tree.terms)]
    return ["node", tree.head, *map(_packed, tree.args)]


def unpacked(found: Packed) -> Tree:
    """The tree that lists hold.

    Raises:
        ValueError: they hold none.
    """
    kind, first, *rest = found
    parts = tuple(unpacked(each) for each in rest if isinstance(each, list)) if kind in ("rel", "node") else ()
    if kind == "num" and isinstance(first, str) and isinstance(rest[0], str):
        return Num(Fraction(int(first, 16), int(rest[0], 16)))
    if kind == "rel" and isinstance(first, list):
        return Rel(tuple(map(str, first)), parts)
    if isinstance(first, str):
        if kind == "sym":
            return Sym(first)
        if kind == "words":
            return Words(first)
        if kind == "node":
            return Node(first, parts)
    raise ValueError("no tree")
