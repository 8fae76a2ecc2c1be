r"""Reads a number exactly: `42`, `-1,234.50`, `3/4`, `\frac{3}{4}`. Never a float, so never almost equal."""

import re
from fractions import Fraction

MAX_LENGTH = 1_000
"""Characters; a longer text is not a number, so that no input costs more than a millisecond."""

_MAGNITUDE = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = rf"([+-]?) ?({_MAGNITUDE})"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_SLASH = re.compile(rf"{_NUMBER} ?/ ?()({_MAGNITUDE})", re.ASCII)
_FRAC = re.compile(rf"([+-]?) ?\\frac ?\{{ ?{_NUMBER} ?\}} ?\{{ ?{_NUMBER} ?\}}", re.ASCII)


def read_number(text: str) -> Fraction | None:
    """The number that a text with single spaces says; None for anything else, a zero denominator included.

    A comma groups digits only without a space after it: `32, 349` is a list.
    """
    if len(text) > MAX_LENGTH:
        return None
    if match := _PLAIN.fullmatch(text):
        return _signed(match[1], match[2])
    if match := _SLASH.fullmatch(text):
        return _ratio(_signed(match[1], match[2]), _signed(match[3], match[4]))
    if match := _FRAC.fullmatch(text):
        ratio = _ratio(_signed(match[2], match[3]), _signed(match[4], match[5]))
        return -ratio if ratio is not None and match[1] == "-" else ratio
    return None


def _signed(sign: str, digits: str) -> Fraction:
    return Fraction(sign + digits.replace(",", ""))


def _ratio(above: Fraction, below: Fraction) -> Fraction | None:
    return above / below if below else None
