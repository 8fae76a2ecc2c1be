"""Exact roots of rationals, and the rationals that stand for names.

Example:

    exact_root(Fraction(8, 27), 3)      # 2/3
"""

import math
import zlib
from fractions import Fraction


def fraction_of(name: str) -> Fraction:
    """A rational between 1 and 2 that belongs to a name, the same in every process."""
    return 1 + Fraction(zlib.crc32(name.encode("utf-8", "replace")) % 99_991, 99_991)


def exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational root of a positive rational; None if it is irrational or the degree is large."""
    if degree > 64:
        return None
    above, below = _integer_root(base.numerator, degree), _integer_root(base.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(number: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(number)
        return root if root * root == number else None
    if number.bit_length() > 900:
        return None
    guess = round(number ** (1 / degree))
    return next((each for each in (guess - 1, guess, guess + 1) if each >= 0 and each**degree == number), None)
