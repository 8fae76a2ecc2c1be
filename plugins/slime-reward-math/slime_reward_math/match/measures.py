r"""Measures: what is written in several units, in letters, or as a time of day.

Example:

    added_up(read("2 hours 30 minutes"), other)      # 2.5 hours
"""

from slime_reward_math.match.forms import LISTS, items
from slime_reward_math.tree import Node, Num, Sym, Tree, Words, number
from slime_reward_math.value.units import is_short_unit, measure

_HALF_DAYS = frozenset({"am", "pm"})
_HOURS, _MINUTES = 24, 60


def added_up(tree: Tree, other: Tree) -> Tree:
    """`2 hours 30 minutes` in the first unit alone, where every part is of one kind and smaller than the one before."""
    parts = items(tree) if isinstance(tree, Node) and tree.head in LISTS - {"or"} else ()
    units = [each.args for each in parts if isinstance(each, Node) and each.head == "unit"]
    if not units or len(units) != len(parts):
        return tree
    found = [measure(words.text) if isinstance(words, Words) else None for _, words in units]
    known = [each for each in found if each is not None]
    if len(known) < len(units) or len({each.dimension for each in known}) > 1:
        return tree
    if any(one.factor <= two.factor for one, two in zip(known, known[1:], strict=False)):
        return tree
    scaled = [
        Node("*", (value, Num(each.factor / known[0].factor))) for (value, _), each in zip(units, known, strict=True)
    ]
    return Node("unit", (Node("+", tuple(scaled)), units[0][1]))


def with_unit(tree: Tree, other: Tree) -> Tree:
    r"""`0.12 m` with its letter as a unit, where the other side has a unit; an ohm's sign is one before any number."""
    if not (isinstance(tree, Node) and tree.head in ("*", "/")):
        return tree
    unit = isinstance(other, Node) and other.head == "unit"
    value, letter = tree.args[0], tree.args[-1]
    if tree.head == "*" and len(tree.args) == 2 and isinstance(letter, Sym) and isinstance(value, Num | Node):
        if letter.name == "Omega" and (unit or isinstance(other, Num)):
            return Node("unit", (value, Words("ohm")))
        if unit and is_short_unit(letter.name):
            return Node("unit", (value, Words(letter.name.lower())))
    return tree


def clock(tree: Tree, other: Tree) -> Tree:
    """A time of day in minutes, where one side tells the half of the day."""
    halves = _half(tree), _half(other)
    if halves == ("", ""):
        return tree
    minutes = _minutes(tree, halves[0])
    return tree if minutes is None else Node("unit", (number(minutes), Words("minutes of the day")))


def _half(tree: Tree) -> str:
    """`am` or `pm` behind a time; nothing without one."""
    if not (isinstance(tree, Node) and tree.head == "unit"):
        return ""
    words = tree.args[1]
    return words.text if isinstance(words, Words) and words.text in _HALF_DAYS else ""


def _minutes(tree: Tree, half: str) -> int | None:
    """The minutes since midnight; None without a half of the day that is needed, or for what is no time."""
    inner = tree.args[0] if half and isinstance(tree, Node) else tree
    parts = inner.args if isinstance(inner, Node) and inner.head == "ratio" else (inner,)
    shown = [int(each.value) if isinstance(each, Num) and each.value.denominator == 1 else -1 for each in parts]
    hours, minutes = (*shown, 0)[:2]
    if len(shown) > 2 or not 0 <= minutes < _MINUTES or not 0 <= hours < _HOURS:
        return None
    if half:
        return None if not 1 <= hours <= 12 else (hours % 12 + (12 if half == "pm" else 0)) * _MINUTES + minutes
    return hours * _MINUTES + minutes if len(shown) == 2 and (hours > 12 or hours == 0) else None
