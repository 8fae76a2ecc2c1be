"""Counting: numbers in words: `one hundred five`, `two thirds`, `half`.

Example:

    counted("three quarters".split())      # Num(Fraction(3, 4))
"""

import re
from fractions import Fraction

from slime_reward_math.tree import Num, number

_SMALL_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_PLACE_WORDS = """zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"""
_SMALL, _TENS, _PLACES = _SMALL_WORDS.split(), _TENS_WORDS.split(), _PLACE_WORDS.split()
_CARDINAL = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * place for place, word in enumerate(_TENS, 2)},
    **{f"{tens} {unit}": 10 * place + at for place, tens in enumerate(_TENS, 2) for at, unit in enumerate(_SMALL[:10])},
}
_CARDINAL |= {"fourty": 40, "nil": 0}
WORDS = {**_CARDINAL, **{word: value for value, word in enumerate(_PLACES) if word != "second"}}
"""Numbers below a hundred and the first ordinals, in words; `second` is a unit too, and stays a word."""
SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""What a word behind a number multiplies it by."""
_FRACTIONS = {
    "half": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000, "twentieth": 20,
    **{word: value for value, word in enumerate(_PLACES) if value > 2},
    **{tens[:-1] + "ieth": 10 * place for place, tens in enumerate(_TENS, 2)},
}  # fmt: skip
PARTS = {**{f"{word}s": value for word, value in _FRACTIONS.items() if word != "half"}, "halves": 2}
"""What a word behind a number divides it by: `two thirds`."""
VOCABULARY = frozenset(" ".join((*_CARDINAL, *SCALES, *_FRACTIONS, *PARTS)).split())
_NUMERAL = "|".join(sorted(VOCABULARY, key=len, reverse=True))
_PART = "|".join(sorted((*_FRACTIONS, *PARTS), key=len, reverse=True))
_INNER_AND = re.compile(rf"\b(hundred|thousand|million|billion) and (?=(?:{_NUMERAL})\b)", re.IGNORECASE)
_MIXED_AND = re.compile(rf"\b({_NUMERAL}|\d+) and (?=(?:an? |(?:{_NUMERAL}) ?-?)?(?:{_PART})\b)", re.IGNORECASE)
_BEHIND_NUMBER = re.compile(
    rf"and (?:an? |one[ -])({_PART})\b|and (two|three|four|five|seven)[ -]({_PART})\b", re.IGNORECASE
)
"""Every word that a number in words has, but for articles."""


def joined(words: str) -> str:
    """Words with the `and` within a number taken out of sight: `one hundred and five`, `two and a half`."""
    if " and " not in words:
        return words
    return _MIXED_AND.sub(r"\1 & ", _INNER_AND.sub(r"\1 ", words))


def part_behind(words: str) -> tuple[Fraction, str] | None:
    """The fraction of `2 and a half`, and the words behind it; None for anything else."""
    match = _BEHIND_NUMBER.match(words)
    if match is None:
        return None
    below = (_FRACTIONS | PARTS)[(match[1] or match[3]).lower()]
    return Fraction(_CARDINAL[match[2].lower()] if match[2] else 1, below), words[match.end() :]


def counted(parts: list[str]) -> Num | None:
    """The number that words say, all of them; `a third` is one too, but `third` is a place. None for anything else."""
    whole = _cardinal(parts)
    if whole is not None:
        return number(whole)
    for sign, read in (("&", _mixed), ("point", _decimal)):
        if sign in parts:
            return read(parts[: parts.index(sign)], parts[parts.index(sign) + 1 :])
    if parts[-1:] == ["half"] and parts[:-1] in ([], ["a"], ["one"]):
        return Num(Fraction(1, 2))
    if len(parts) == 2 and parts[0] in ("a", "an", "one") and parts[1] in _FRACTIONS:
        return Num(Fraction(1, _FRACTIONS[parts[1]]))
    if parts[-1:] == ["halves"] or not parts or parts[-1] not in PARTS:
        above = _cardinal(parts[:-1]) if parts[-1:] == ["halves"] else None
        return None if above is None else Num(Fraction(above, 2))
    return _parts(parts)


def _parts(parts: list[str]) -> Num | None:
    """`two thirds`, `eleven thirty sixths`: tens belong to the last word where a number is left before them."""
    below = PARTS[parts[-1]]
    if len(parts) > 2 and parts[-2] in _TENS and below < 10 and (above := _cardinal(parts[:-2])) is not None:
        return Num(Fraction(above, _CARDINAL[parts[-2]] + below))
    above = _cardinal(parts[:-1])
    return None if above is None else Num(Fraction(above, below))


def _mixed(whole: list[str], part: list[str]) -> Num | None:
    """`two and a half`."""
    above, rest = _cardinal(whole), counted(part) if "&" not in part else None
    return None if above is None or rest is None or not 0 < rest.value < 1 else Num(above + rest.value)


def _decimal(whole: list[str], digits: list[str]) -> Num | None:
    """`two point five`."""
    above = _cardinal(whole) if whole else 0
    if above is None or not digits or not set(digits) <= set(_SMALL[:10]):
        return None
    text = f"{above}." + "".join(str(_SMALL.index(each)) for each in digits)
    return Num(Fraction(text), len(digits), len(text.replace(".", "").lstrip("0")))


def _cardinal(parts: list[str]) -> int | None:
    text = " ".join(parts)
    if text in _CARDINAL:
        return _CARDINAL[text]
    for word in reversed(SCALES):
        if word in parts:
            place = parts.index(word)
            above = 1 if parts[:place] == ["a"] else _cardinal(parts[:place])
            below = _cardinal(parts[place + 1 :]) if parts[place + 1 :] else 0
            if above is None or below is None or below >= SCALES[word]:
                return None
            return above * SCALES[word] + below
    return None
