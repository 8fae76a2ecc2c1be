r"""Lengths: feet and inches, whose marks are those of minutes and seconds of an angle.

Example:

    in_feet(read("6'2\""), read(r"74\text{ inches}"))      # 6 feet and 2 inches
"""

from slime_reward_math.tree import Node, Num, Tree, Words, is_constant, number, walk
from slime_reward_math.value.units import measure

_MARKS = {60: "feet", 3600: "inches"}
_LENGTH = (("length", 1),)


def in_feet(tree: Tree, other: Tree) -> Tree:
    """`9"` as nine inches and `6'` as six feet, where the other side is a length or a bare number."""
    parts = tree.args if isinstance(tree, Node) and tree.head == "+" else (tree,)
    bare = isinstance(other, Num) and len(parts) == 1
    if not bare and not any(map(_is_length, walk(other))):
        return tree
    found = [_marked(each) for each in parts]
    known = [each for each in found if each is not None]
    if len(known) < len(parts):
        return tree
    return known[0] if len(known) == 1 else Node("list", tuple(known))


def _is_length(tree: Tree) -> bool:
    words = tree.args[1] if isinstance(tree, Node) and tree.head == "unit" else None
    found = measure(words.text) if isinstance(words, Words) else None
    return found is not None and found.dimension == _LENGTH


def _marked(tree: Tree) -> Tree | None:
    """A number with one or two marks behind it as a length; None for anything else."""
    if isinstance(tree, Node) and tree.head == "/" and isinstance(tree.args[0], Num):
        # Only the last number of `3/8"` has the marks.
        below = _marked(tree.args[1])
        return (
            Node("unit", (Node("/", (tree.args[0], below.args[0])), below.args[1])) if isinstance(below, Node) else None
        )
    if isinstance(tree, Node) and tree.head == "call:prime" and is_constant(tree.args[0]):
        return Node("unit", (tree.args[0], Words("feet" if tree.args[1] == number(1) else "inches")))
    inner = tree.args[0] if isinstance(tree, Node) and tree.head == "deg" else None
    if not (isinstance(inner, Node) and inner.head == "/" and isinstance(inner.args[1], Num)):
        return None
    mark = _MARKS.get(int(inner.args[1].value)) if inner.args[1].value > 1 else None
    return None if mark is None else Node("unit", (inner.args[0], Words(mark)))
