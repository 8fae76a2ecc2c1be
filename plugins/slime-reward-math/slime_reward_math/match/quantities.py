"""Quantities: values with units, percent signs, degrees, times of day, and values given to a written precision.

Example:

    units_agree("km", "m")      # Fraction(1, 1000): multiply the answer by it
    added_up(read("2 hours 30 minutes"), other)      # 2.5 hours
"""

import itertools
import math
from fractions import Fraction
from typing import NamedTuple

from slime_reward_math.match.forms import LISTS, is_node, items, minus, negative
from slime_reward_math.tree import Node, Num, Sym, Tree, Words, has_head, is_constant, number, symbols, walk
from slime_reward_math.value.evaluate import approximate, exactly
from slime_reward_math.value.units import is_short_unit, measure

MIN_DIGITS_OF_GOLD = 3
"""Significant digits that a decimal gold needs to accept an exact answer that rounds to it."""
MIN_PLACES_OF_GOLD = 2
"""Decimal places that such a gold needs."""
MIN_DIGITS_OF_ANSWER = 5
"""Significant digits that a rounded answer needs where the gold is exact."""
_GENERIC = frozenset(
    {"unit", "units", "square", "sq", "cubic", "of", "the", "total", "about", "approximately", "in", "each"}
)


class Quantity(NamedTuple):
    """A value and its unit."""

    value: Tree
    unit: str
    """The words behind it; empty without any."""


def quantity(tree: Tree) -> Quantity:
    """The value and the unit of a tree; `percent` and `degrees` become signs."""
    if not (isinstance(tree, Node) and tree.head == "unit"):
        return Quantity(tree, "")
    value, words = tree.args
    text = words.text if isinstance(words, Words) else ""
    head = {"percent": "percent", "degrees": "deg", "degree": "deg", "deg": "deg", "percents": "percent"}.get(text)
    return Quantity(Node(head, (value,)), "") if head else Quantity(value, text)


def is_radians(unit: str) -> bool:
    """Whether a unit is the radian, which has the factor 1 and may not be left out next to degrees."""
    return unit in ("radians", "radian", "rad")


def units_agree(gold: str, answer: str) -> Fraction | None:
    """Factor that converts the answer to the gold's unit; None if the units measure different things."""
    left, right = measure(gold), measure(answer)
    if left is not None and right is not None:
        return right.factor / left.factor if left.dimension == right.dimension else None
    if _power(gold) and _power(answer) and _power(gold) != _power(answer):
        return None
    one, two = _stems(gold), _stems(answer)
    if not one or not two or one <= two or two <= one:
        return Fraction(1)
    return None


def _power(words: str) -> int:
    return 3 if "cubic" in words or "^3" in words else 2 if "square" in words or "sq" in words or "^2" in words else 0


def _stems(words: str) -> set[str]:
    return {word.rstrip("s").removesuffix("e") for word in words.split() if word not in _GENERIC}


def percent_of(gold: Tree, answer: Tree) -> list[tuple[Tree, Tree]]:
    """The pairs to compare where one side or both have a percent sign: the sign may be missing on one side."""
    if is_node(gold, ("percent",)) and is_node(answer, ("percent",)):
        return [(_inner(gold), _inner(answer))]
    if is_node(gold, ("percent",)):
        return [(_inner(gold), answer), (_hundredth(_inner(gold)), answer)]
    size = approximate(gold)
    pairs = [(gold, _hundredth(_inner(answer)))]
    # A gold of 0.25 is not a percentage without its sign: only one of at least one may have lost it.
    return pairs if size is None or abs(size) < 1 else [(gold, _inner(answer)), *pairs]


def _inner(tree: Tree) -> Tree:
    return tree.args[0] if isinstance(tree, Node) else tree


def _hundredth(tree: Tree) -> Tree:
    return Num(tree.value / 100) if isinstance(tree, Num) else Node("/", (tree, number(100)))


def degrees_of(gold: Tree, answer: Tree) -> list[tuple[Tree, Tree]]:
    """The pairs to compare where one side or both are in degrees: the sign may be missing on one side."""
    left, right = _bare(gold), _bare(answer)
    if left != gold and right != answer:
        return [(left, right)]
    plain = answer if left != gold else gold
    return [] if any(each == Sym("pi") for each in walk(plain)) else [(left, right)]


def _bare(tree: Tree) -> Tree:
    if isinstance(tree, Node) and tree.head in ("+", "neg", "*", "/", "deg"):
        args = tuple(_bare(each) for each in tree.args)
        return args[0] if tree.head == "deg" else Node(tree.head, args)
    return tree


def close(gold: Tree, answer: Tree) -> bool:
    """Whether one side is the other, rounded to its written digits; the policy gives the number of digits needed."""
    if symbols(gold) or symbols(answer):
        return False
    rounded, exact = _decimal(gold), _decimal(answer)
    if rounded is not None and exact is None:
        enough = rounded.places >= MIN_PLACES_OF_GOLD and rounded.digits >= MIN_DIGITS_OF_GOLD
        return enough and not _has_decimals(answer) and _rounds(answer, rounded)
    if rounded is None and exact is not None and exact.digits >= MIN_DIGITS_OF_ANSWER:
        return not _has_decimals(gold) and not _terminates(gold) and _rounds(gold, exact)
    return False


def cut_off(gold: Tree, answer: Tree) -> bool:
    """Whether a decimal that ends in dots agrees with the other side in its written digits, at least three."""
    left, right = _before_dots(gold), _before_dots(answer)
    one, two = _decimal(left), _decimal(right)
    if is_node(gold, ("dots",)) and is_node(answer, ("dots",)):
        return left == right
    rounded, exact = (one, right) if is_node(gold, ("dots",)) else (two, left)
    if rounded is None or symbols(exact):
        return False
    shorter = _decimal(exact)
    if shorter is not None and shorter.places <= rounded.places:
        return _rounds(rounded, shorter) and (shorter == rounded or shorter.digits >= MIN_DIGITS_OF_GOLD)
    return rounded.digits >= MIN_DIGITS_OF_GOLD and _rounds(exact, rounded)


def _before_dots(tree: Tree) -> Tree:
    if isinstance(tree, Node) and tree.head == "neg":
        return negative(_before_dots(tree.args[0]))
    return tree.args[0] if isinstance(tree, Node) and tree.head == "dots" else tree


def _decimal(tree: Tree) -> Num | None:
    if isinstance(tree, Node) and tree.head == "neg":
        inner = _decimal(tree.args[0])
        return inner and Num(-inner.value, inner.places, inner.digits)
    return tree if isinstance(tree, Num) and tree.places else None


def _has_decimals(tree: Tree) -> bool:
    return any(isinstance(each, Num) and each.places for each in walk(tree))


def _terminates(tree: Tree) -> bool:
    """Whether a rational's decimal expansion ends, so that an answer needs all its digits."""
    value = exactly(tree)
    if value is None:
        return False
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _rounds(exact: Tree, rounded: Num) -> bool:
    """Whether the exact value, rounded or cut off to the written places, is the rounded one."""
    scale = 10**rounded.places
    value = exactly(exact)
    error: float | Fraction | None
    if value is not None:
        scaled = value * scale
        wanted = rounded.value * scale
        return wanted in (math.floor(scaled + Fraction(1, 2)), math.trunc(scaled))
    error = approximate(minus(exact, rounded))
    place = approximate(exact)
    if error is None or place is None:
        return False
    cut_off = error * (1 if place > 0 else -1)
    return bool(abs(error) * scale <= 0.5 or 0 <= cut_off * scale < 1)


_UNIT_SIGNS = {"Omega": "ohm", "mu": "u"}
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
    """Alternating numbers and units as quantities; empty if they do not alternate. An m behind hours is a minute."""
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

    An ohm sign, and a letter after `\mu`, are units if the other side is any plain number.
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
    if isinstance(base, Sym) and isinstance(power, Num) and (base.name in _UNIT_SIGNS or is_short_unit(base.name)):
        name = _UNIT_SIGNS.get(base.name, base.name.lower())
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
    """A time of day in minutes, if one side has `am` or `pm`."""
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
