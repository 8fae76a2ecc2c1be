r"""Quantities: values with units, percent signs, degrees, and values given to a written precision.

Example:

    units_agree("km", "m")      # Fraction(1, 1000): multiply the answer by it
"""

import math
from fractions import Fraction
from typing import NamedTuple

from slime_reward_math.match.forms import is_node, minus, negative
from slime_reward_math.tree import Node, Num, Sym, Tree, Words, number, symbols, walk
from slime_reward_math.value.approximate import approximate, exactly
from slime_reward_math.value.units import measure

MIN_DIGITS_OF_GOLD = 3
"""Significant digits that a decimal gold needs to accept an exact answer that rounds to it."""
MIN_PLACES_OF_GOLD = 2
"""Digits after the point that it needs for that."""
MIN_DIGITS_OF_ANSWER = 5
"""Significant digits that a rounded answer needs where the gold is exact."""
_GENERIC = frozenset(
    {"unit", "units", "square", "sq", "cubic", "of", "the", "total", "about", "approximately", "in", "each"}
)


class Quantity(NamedTuple):
    """A value and what it counts."""

    value: Tree
    """The value."""
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
    """Whether a unit is the radian: the value alone, and no unit that may be missing beside degrees."""
    return unit in ("radians", "radian", "rad")


def units_agree(gold: str, answer: str) -> Fraction | None:
    """What to multiply the answer by, so that both count in the gold's unit; None if they count different things."""
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
    """2 for square units, 3 for cubic ones, 0 where neither is said."""
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
    """The tree without its degree signs."""
    if isinstance(tree, Node) and tree.head in ("+", "neg", "*", "/", "deg"):
        args = tuple(_bare(each) for each in tree.args)
        return args[0] if tree.head == "deg" else Node(tree.head, args)
    return tree


def close(gold: Tree, answer: Tree) -> bool:
    """Whether one side is the other, rounded as far as it is written: see the policy for how many digits that takes."""
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
    """Whether two are the same as far as the dots behind a decimal leave it open; three digits at least."""
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
    """A number written with a decimal point, its sign included."""
    if isinstance(tree, Node) and tree.head == "neg":
        inner = _decimal(tree.args[0])
        return inner and Num(-inner.value, inner.places, inner.digits)
    return tree if isinstance(tree, Num) and tree.places else None


def _has_decimals(tree: Tree) -> bool:
    return any(isinstance(each, Num) and each.places for each in walk(tree))


def _terminates(tree: Tree) -> bool:
    """Whether a rational's decimal expansion ends: then nothing but all its digits will do."""
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
