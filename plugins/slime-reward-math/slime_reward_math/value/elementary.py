"""Elementary functions of decimals at the context's precision: what `decimal` itself leaves out.

Example:

    cosine_sine(Decimal(1))      # (Decimal("0.5403..."), Decimal("0.8414..."))
"""

from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache

from slime_reward_math.value.field import Imprecise, TooBig

_LARGEST_ANGLE = Decimal(10) ** 30
"""Radians; beyond it too many digits would be lost."""


def pi() -> Decimal:
    """Pi."""
    return _pi(getcontext().prec)


@lru_cache(8)
def _pi(digits: int) -> Decimal:
    # Machin: pi = 16 arctan(1/5) - 4 arctan(1/239), in integers.
    unit = 10 ** (digits + 10)
    scaled = 4 * (4 * _inverse_arc_tangent(5, unit) - _inverse_arc_tangent(239, unit))
    with localcontext() as context:
        context.prec = digits
        return Decimal(scaled) / Decimal(unit)


def _inverse_arc_tangent(number: int, unit: int) -> int:
    term = unit // number
    total, divisor, sign = term, 1, 1
    while term:
        term //= number * number
        divisor, sign = divisor + 2, -sign
        total += sign * (term // divisor)
    return total


def cosine_sine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine of an angle in radians.

    Raises:
        Imprecise: the angle is beyond what can be reduced.
    """
    if abs(angle) > _LARGEST_ANGLE:
        raise Imprecise
    with localcontext() as context:
        context.prec += 34
        turn = 2 * _pi(context.prec)
        # Reduced to at most a turn's sixteenth by halving four times.
        small = (angle - turn * (angle / turn).to_integral_value()) / 16
        cos, sin = _series(small, Decimal(1), 0), _series(small, small, 1)
        for _ in range(4):
            cos, sin = cos * cos - sin * sin, 2 * cos * sin
    return +cos, +sin


def _series(angle: Decimal, term: Decimal, start: int) -> Decimal:
    total, square, index = term, angle * angle, start
    limit = Decimal(1).scaleb(-getcontext().prec)
    while abs(term) > limit:
        term = -term * square / ((index + 1) * (index + 2))
        total, index = total + term, index + 2
    return total


def arc_tangent(ratio: Decimal) -> Decimal:
    """The angle between -pi/2 and pi/2 whose tangent this is."""
    if abs(ratio) > 1:
        return (pi() / 2).copy_sign(ratio) - arc_tangent(1 / ratio)
    with localcontext() as context:
        context.prec += 8
        halvings = 4
        for _ in range(halvings):
            ratio = ratio / (1 + (1 + ratio * ratio).sqrt())
        total = term = ratio
        index, square = 1, ratio * ratio
        limit = Decimal(1).scaleb(-context.prec)
        while abs(term) > limit:
            term, index = -term * square, index + 2
            total += term / index
        found = total * Decimal(2**halvings)
    return +found


def log_gamma(argument: Decimal) -> tuple[Decimal, int]:
    """The logarithm of the gamma function's absolute value, and its sign; the argument is not a pole.

    Stirling's series (Abramowitz and Stegun 6.1.40) after a shift to where it converges to the precision.
    """
    if abs(argument) > Decimal(10) ** 25:
        raise TooBig
    digits = getcontext().prec
    if argument < -digits:
        raise Imprecise
    with localcontext() as context:
        context.prec += 10
        shifted, product = argument, Decimal(1)
        while shifted < digits:
            product *= shifted
            shifted += 1
        total = (shifted - Decimal("0.5")) * shifted.ln() - shifted + (2 * _pi(context.prec)).ln() / 2
        power = shifted
        for index, number in enumerate(_bernoulli(digits // 2), start=1):
            total += Decimal(number.numerator) / (Decimal(number.denominator) * 2 * index * (2 * index - 1) * power)
            power *= shifted * shifted
        found = total - abs(product).ln()
    return +found, 1 if product > 0 else -1


@lru_cache(4)
def _bernoulli(count: int) -> tuple[Fraction, ...]:
    """The Bernoulli numbers B2, B4, ... (Akiyama and Tanigawa's triangle)."""
    found = []
    row: list[Fraction] = []
    for index in range(2 * count + 1):
        row.append(Fraction(1, index + 1))
        for place in range(index, 0, -1):
            row[place - 1] = place * (row[place - 1] - row[place])
        if index and index % 2 == 0:
            found.append(row[0])
    return tuple(found)
