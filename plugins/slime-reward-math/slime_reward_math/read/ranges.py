r"""Sets of reals in words: `greater than 2 and at most 5`, `from 0 to 1 inclusive`, `all nonzero real numbers`.

Example:

    range_in_signs("all real numbers greater than 2 and at most 5")      # "(2,5]"
"""

import re

_VALUE = r"(-?(?:\d+(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\{\d+\}\{\d+\}))"
_REALS = (
    r"(?:(?:all|the|any|every) )?(?:real )?(?:(?:numbers?|values?|reals) )?(?:[a-z] )?(?:(?:that|which) )?"
    r"(?:(?:is|are) )?"
)
_ABOVE = {"greater than": "(", "more than": "(", "larger than": "(", "above": "(", "exceeding": "("} | dict.fromkeys(
    ("greater than or equal to", "at least", "no less than", "not less than"), "["
)
_BELOW = {"less than": ")", "smaller than": ")", "below": ")"} | dict.fromkeys(
    ("less than or equal to", "at most", "no more than", "not more than", "up to"), "]"
)
_SIDE = "|".join(sorted((*_ABOVE, *_BELOW), key=len, reverse=True))
_TWO = re.compile(rf"{_REALS}(?:strictly )?({_SIDE}) {_VALUE},? (and|but|or) (?:strictly )?({_SIDE}) {_VALUE}")
_BETWEEN = re.compile(
    rf"{_REALS}(strictly )?(?:between {_VALUE} and|from {_VALUE} to) {_VALUE}"
    r"(?: ?,? ?\(?(inclusive|exclusive)\)?)?"
)
_KINDS = {"real": "R", "rational": "Q", "complex": "C", "integer": "Z"}
_KIND = r"(real|rational|complex|integer)(?: ?numbers?|s)?(?: [a-z])?"
_EXCEPT = re.compile(
    rf"(?:all|any|every|the) {_KIND} (?:except(?: for)?|other than|besides|apart from|but|excluding|not equal to|"
    rf"different from) {_VALUE}"
)
_NONZERO = re.compile(rf"(?:(?:all|any|every|the) )?non-?zero {_KIND}")
_BOTH = re.compile(rf"(?:either {_VALUE} or|both {_VALUE} and) {_VALUE}")


def range_in_signs(words: str) -> str | None:
    """What a set in words, in lower case, is in signs; None for anything else."""
    if (match := _TWO.fullmatch(words)) is not None:
        return _two(*match.groups())
    if (match := _BETWEEN.fullmatch(words)) is not None and (match[1] or match[5]):
        ends = "()" if match[1] or match[5] == "exclusive" else "[]"
        return f"{ends[0]}{match[2] or match[3]},{match[4]}{ends[1]}"
    if (match := _EXCEPT.fullmatch(words)) is not None:
        return rf"\mathbb{{{_KINDS[match[1]]}}}\setminus\{{{match[2]}\}}"
    if (match := _NONZERO.fullmatch(words)) is not None:
        return rf"\mathbb{{{_KINDS[match[1]]}}}\setminus\{{0\}}"
    if (match := _BOTH.fullmatch(words)) is not None:
        return f"{match[1] or match[2]}, {match[3]}"
    return None


def _two(one: str, first: str, joint: str, two: str, second: str) -> str | None:
    """Two bounds: an interval where both hold, two rays where either does."""
    if (one in _ABOVE) == (two in _ABOVE):
        return None
    low, high = ((one, first), (two, second)) if one in _ABOVE else ((two, second), (one, first))
    if joint == "or":
        return rf"(-\infty,{high[1]}{_BELOW[high[0]]}\cup{_ABOVE[low[0]]}{low[1]},\infty)"
    return f"{_ABOVE[low[0]]}{low[1]},{high[1]}{_BELOW[high[0]]}"
