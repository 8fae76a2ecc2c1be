r"""Measures: what is written in several units, in letters, or as a time of day.

Example:

    added_up(read("2 hours 30 minutes"), other)      # 2.5 hours
"""

import itertools

from slime_reward_math.match.forms import LISTS, items
from slime_reward_math.tree import Node, Num, Sym, Tree, Words, has_head, is_constant, number
from slime_reward_math.value.units import is_short_unit, measure

_SIGNS = {"Omega": "ohm", "mu": "u"}
_HALF_DAYS = frozenset({"am", "pm"})
_HOURS, _MINUTES = 24, 60


def added_up(tree: Tree, other: Tree) -> Tree:
    """`2 hours 30 minutes` in the first unit alone, where every part is of one kind and smaller than the one before."""
    parts = items(tree) if isinstance(tree, Node) and tree.head in LISTS - {"or"} else ()
    pieces: list[Tree | str] = []
    if _pieces(tree, pieces) and len(pieces) > 2:
        parts = _measured(pieces) or parts
    units = [each.args for each in parts if isinstance(each, Node) and each.head == "unit"]
    if not units or len(units) != len(parts):
        return tree
    found = [measure(words.text) if isinstance(words, Words) else None for _, words in units]
    known = [each for each in found if each is not None]
    if len(known) < len(units) or len({each.dimension for each in known}) > 1:
        return tree
    if any(one.factor <= two.factor for one, two in itertools.pairwise(known)):
        return tree
    scaled = [
        Node("*", (value, Num(each.factor / known[0].factor))) for (value, _), each in zip(units, known, strict=True)
    ]
    return Node("unit", (Node("+", tuple(scaled)), units[0][1]))


def _pieces(tree: Tree, found: list[Tree | str]) -> bool:
    """Whether a tree is numbers and units, letters or words, in a row; they are put into the list: 2, h, 30, min."""
    if isinstance(tree, Node) and (tree.head == "*" or tree.head in LISTS - {"or"}):
        return all(_pieces(each, found) for each in tree.args)
    if isinstance(tree, Node) and tree.head == "unit":
        return _pieces(tree.args[0], found) and _pieces(tree.args[1], found)
    if isinstance(tree, Words) or (isinstance(tree, Sym) and is_short_unit(tree.name)):
        found.append(tree.text if isinstance(tree, Words) else tree.name)
        return True
    found.append(tree)
    return isinstance(tree, Num)


def _measured(pieces: list[Tree | str]) -> tuple[Tree, ...]:
    """Numbers and units by turns as quantities; nothing where they do not alternate. An m behind hours is a minute."""
    values, units = pieces[::2], pieces[1::2]
    if len(values) != len(units):
        return ()
    found: list[Tree] = []
    for place, (value, unit) in enumerate(zip(values, units, strict=True)):
        if isinstance(value, str) or not isinstance(unit, str):
            return ()
        minutes = unit == "m" and place == 1 and units[0] in ("h", "hr", "hour", "hours")
        found.append(Node("unit", (value, Words("min" if minutes else unit.lower()))))
    return tuple(found)


def with_unit(tree: Tree, other: Tree) -> Tree:
    r"""`0.12 m`, `5 m/s` and `2 \mu F` with their letters as a unit, where the other side has one.

    An ohm's sign and what has a `\mu` before it are units beside any plain number.
    """
    if not (isinstance(tree, Node) and tree.head in ("*", "/")):
        return tree
    values: list[Tree] = []
    letters: list[str] = []
    if not _taken_apart(tree, "", values, letters) or not values or not letters:
        return tree
    signs = letters[0] == "ohm" or (letters[0][0] == "u" and len(letters[0]) > 1)
    unit = has_head(other, "unit")
    if not (unit or (signs and isinstance(other, Num))):
        return tree
    value = values[0] if len(values) == 1 else Node("*", tuple(values))
    return Node("unit", (value, Words(" ".join(letters))))


def _taken_apart(tree: Tree, sign: str, values: list[Tree], letters: list[str]) -> bool:
    """Whether a product is numbers before letters of units; they are put into the lists, powers with their sign."""
    if isinstance(tree, Node) and tree.head in ("*", "/"):
        signs = ("",) * len(tree.args) if tree.head == "*" else ("", "-")
        if sign and tree.head == "/":
            return False
        return all(
            _taken_apart(each, sign or under, values, letters) for each, under in zip(tree.args, signs, strict=True)
        )
    base, power = tree.args if isinstance(tree, Node) and tree.head == "^" else (tree, number(1))
    if isinstance(base, Sym) and isinstance(power, Num) and (base.name in _SIGNS or is_short_unit(base.name)):
        name = _SIGNS.get(base.name, base.name.lower())
        if letters and letters[-1] == "u":
            letters.pop()
            name = "u" + name
        exponent = f"{sign}{power.value}" if power.value > 0 or not sign else str(-power.value)
        letters.append(name if exponent == "1" else f"{name}^{exponent}")
        return True
    if letters or sign or not is_constant(tree):
        return False
    values.append(tree)
    return True


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
    """The minutes since midnight; None without a half of the day that is needed, or for what is not a time."""
    inner = tree.args[0] if half and isinstance(tree, Node) else tree
    parts = inner.args if isinstance(inner, Node) and inner.head == "ratio" else (inner,)
    shown = [int(each.value) if isinstance(each, Num) and each.value.denominator == 1 else -1 for each in parts]
    hours, minutes = (*shown, 0)[:2]
    if len(shown) > 2 or not 0 <= minutes < _MINUTES or not 0 <= hours < _HOURS:
        return None
    if half:
        return None if not 1 <= hours <= 12 else (hours % 12 + (12 if half == "pm" else 0)) * _MINUTES + minutes
    return hours * _MINUTES + minutes if len(shown) == 2 and (hours > 12 or hours == 0) else None
