r"""Phrases of answers, translated to signs for a second reading: `half past seven`, `greater than 2 and at most 5`.

Example:

    in_signs(r"\text{the sum of 5 and 2}")      # "(5)+(2)"
    range_in_signs("all real numbers greater than 2 and at most 5")      # "(2,5]"
"""

import re
from collections.abc import Callable

from slime_reward_math.read.names import counted

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
    rf"{_REALS}(strictly )?(?:between {_VALUE} and|from {_VALUE} to) {_VALUE}(?: ?,? ?\(?(inclusive|exclusive)\)?)?"
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
    """A set in lower-case words, translated to signs; None for anything else."""
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
    if (one in _ABOVE) == (two in _ABOVE):
        return None
    low, high = ((one, first), (two, second)) if one in _ABOVE else ((two, second), (one, first))
    if joint == "or":
        return rf"(-\infty,{high[1]}{_BELOW[high[0]]}\cup{_ABOVE[low[0]]}{low[1]},\infty)"
    return f"{_ABOVE[low[0]]}{low[1]},{high[1]}{_BELOW[high[0]]}"


Say = Callable[[re.Match[str]], str]

NONE = "0"
"""Translation of `none` for a gold that is a number; a gold `none` may be the empty set."""
MAX_SAYING = 120
"""Maximum characters of a saying."""
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|mathrm)\s*\{([^{}]*)\}")
_V = r"(-?(?:\d+(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\{\d+\}\{\d+\}|[a-z]+(?:[ -][a-z]+)?))"
_SMALL = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?|half|quarter"
)
_HOUR = r"(\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "twelve": 12,
    "sixteen": 16,
}  # fmt: skip
_BASES |= {"binary": 2, "ternary": 3, "octal": 8, "hexadecimal": 16, "hex": 16}


def _value(words: str) -> str | None:
    if any(sign.isdigit() for sign in words):
        return words
    found = counted(words.replace("-", " ").split())
    return None if found is None else f"({found.value})"


def _pair(form: str) -> Say:
    def say(match: re.Match[str]) -> str:
        one, two = _value(match[1]), _value(match[2])
        return match[0] if one is None or two is None else form.format(one, two)

    return say


def _single(form: str) -> Say:
    def say(match: re.Match[str]) -> str:
        one = _value(match[1])
        return match[0] if one is None else form.format(one)

    return say


def _based(match: re.Match[str]) -> str:
    name = match[2].lower()
    return f"{match[1]}_{{{_BASES.get(name, name)}}}"


def _past(match: re.Match[str]) -> str:
    minutes = {"half": 30, "quarter": 15}.get(match[1]) or _minutes(match[1])
    hour = _minutes(match[3])
    if minutes is None or hour is None or not 0 < minutes < 60:
        return match[0]
    if match[2] == "to":
        hour, minutes = (hour - 2) % 12 + 1, 60 - minutes
    return f"{hour}:{minutes:02d}"


def _past_of_day(match: re.Match[str]) -> str:
    morning = match[4] == "morning" or match[6] == "a"
    return f"{_past(match)} \\text{{ {'am' if morning else 'pm'}}}"


def _minutes(words: str) -> int | None:
    if words.isdigit():
        return int(words)
    found = counted(words.replace("-", " ").split())
    return int(found.value) if found is not None and found.value.denominator == 1 else None


_COUNTS = {"once": "1", "twice": "2", "thrice": "3", "a pair": "2", "a couple": "2", "two score": "40"}
_SHORT = "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"


def _date(match: re.Match[str]) -> str:
    day, name = (match[1], match[2]) if match[1].isdigit() else (match[2], match[1])
    month = next(each for each in _MONTHS.split("|") if each.startswith(name[:3]))
    return rf"\text{{{month}}} {int(day)}" + (f", {match[3]}" if match[3] else "")


def _iso(match: re.Match[str]) -> str:
    months = _MONTHS.split("|")
    month = int(match[2])
    return rf"\text{{{months[month - 1]}}} {int(match[3])}, {match[1]}" if 0 < month <= 12 else match[0]


_PHRASES: tuple[tuple[re.Pattern[str], Say], ...] = tuple(
    (re.compile(pattern), say)
    for pattern, say in (
        (rf"^(?:at )?(?:a )?({_SMALL}|\d+)(?: minutes?)? (past) {_HOUR}(?: o'clock)?$", _past),
        (rf"^(?:at )?(?:a )?(quarter|(?:{_SMALL}|\d+)(?= minutes))(?: minutes)? (to) {_HOUR}(?: o'clock)?$", _past),
        (
            (
                rf"^(?:at )?(?:a )?({_SMALL}|quarter|\d+)(?: minutes?)? (past|to) {_HOUR}(?: o'clock)? ?,?(?:in the "
                r"(morning|afternoon|evening)|(at night)|([ap])\.?m\.?)$"
            ),
            _past_of_day,
        ),
        (rf"^(?:exactly|only|just|precisely) {_V}$", _single("{0}")),
        (r"^(\d+) and (\d+/\d+)$", lambda match: f"{match[1]} {match[2]}"),
        (rf"^{_V} over {_V}$", _pair("({0})/({1})")),
        (rf"^{_V} dollars? and {_V} cents?$", _pair("{0} \\text{{ dollars and }} {1} \\text{{ cents}}")),
        (r"^\\?\$? ?(\d+(?:\.\d+)?) ?k$", lambda match: f"1000({match[1]})"),
        (r"^0x([0-9a-f]+)$", lambda match: f"{match[1].upper()}_{{16}}"),
        (r"^(once|twice|thrice|a pair|a couple|two score)$", lambda match: _COUNTS[match[1]]),
        (
            (
                rf"^(?:on )?(?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: day)? (?:of )?({_MONTHS}|(?:{_SHORT})\.?)"
                rf"(?:,? (\d{{4}}))?$"
            ),
            _date,
        ),
        (rf"^(?:on )?({_MONTHS}|(?:{_SHORT})\.?) (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?$", _date),
        (r"^(\d{4})-(\d\d)-(\d\d)$", _iso),
        (rf"^(?:the )?sum of {_V} and {_V}$", _pair("({0})+({1})")),
        (rf"^(?:the )?product of {_V} and {_V}$", _pair("({0})({1})")),
        (rf"^(?:the )?difference (?:of|between) {_V} and {_V}$", _pair("({0})-({1})")),
        (rf"^(?:the )?quotient of {_V} and {_V}$", _pair("({0})/({1})")),
        (rf"^(?:the )?(?:average|mean) of {_V} and {_V}$", _pair("(({0})+({1}))/2")),
        (rf"^(?:the )?ratio (?:of )?{_V} to {_V}$", _pair("{0}:{1}")),
        (rf"^{_V} (?:decreased|reduced|diminished) by {_V}$", _pair("({0})-({1})")),
        (rf"^{_V} (?:increased|raised) by {_V}$", _pair("({0})+({1})")),
        (rf"^{_V} (?:multiplied by|times) {_V}$", _pair("({0})({1})")),
        (rf"^{_V} divided by {_V}$", _pair("({0})/({1})")),
        (rf"^{_V} (?:raised )?to the power (?:of )?{_V}$", _pair("({0})^{{{1}}}")),
        (rf"^{_V} subtracted from {_V}$", _pair("({1})-({0})")),
        (rf"^{_V} less than {_V}$", _pair("({1})-({0})")),
        (rf"^{_V} more than {_V}$", _pair("({1})+({0})")),
        (rf"^{_V} halved$", _single("({0})/2")),
        (rf"^{_V} doubled$", _single("2({0})")),
        (rf"^{_V} tripled$", _single("3({0})")),
        (rf"^(?:a |about |exactly )?{_V} (?:in|out of) (?:every )?{_V}(?: chance| odds)?$", _pair("{0}/{1}")),
        (rf"^(?:the ratio is |a ratio of )?{_V}(?: is)? to {_V}$", _pair("{0}:{1}")),
        (r"^\(?([0-9a-fA-F]+)\)?,? \(?(?:in )?(?:base[- ])(\d+|[a-z]+)\)?$", _based),
        (r"^\(?([0-9a-fA-F]+)\)?,? \(?(?:in )?(binary|octal|hexadecimal|ternary|hex)\)?$", _based),
        (r"^0b([01]+)$", lambda match: f"{match[1]}_{{2}}"),
        (r"^0o([0-7]+)$", lambda match: f"{match[1]}_{{8}}"),
        (r"^(\d+)_\{?\(?(two|three|four|five|six|seven|eight|nine|twelve|sixteen)\)?\}?$", _based),
        (r"^(?:an hour and a half|one hour and a half|one and a half hours)$", lambda match: "1.5 \\text{ hours}"),
        (r"^(?:an? )?half (?:an|of an|hour)(?: hour)?$", lambda match: "0.5 \\text{ hours}"),
        (r"^(?:a |one )?quarter of an hour$", lambda match: "15 \\text{ minutes}"),
        (r"^(an|a|one) (hour|minute|second|day|week|month|year)$", lambda match: f"1 \\text{{ {match[2]}}}"),
        (r"^(?:a|one) fortnight$", lambda match: "2 \\text{ weeks}"),
        (r"^(?:12(?::00)? |twelve )?(?:at )?noon$|^midday$", lambda match: "12:00 \\text{ pm}"),
        (r"^(?:12(?::00)? |twelve )?(?:at )?midnight$", lambda match: "12:00 \\text{ am}"),
        (rf"^(?:at )?{_HOUR} o'clock$", lambda match: f"{_minutes(match[1])}:00"),
        (r"^(?:at )?(\d{1,2}(?::\d\d)?) ?(?:o'clock )?in the morning$", lambda match: f"{match[1]} \\text{{ am}}"),
        (
            r"^(?:at )?(\d{1,2}(?::\d\d)?) ?(?:o'clock )?(?:in the (?:afternoon|evening)|at night)$",
            lambda match: f"{match[1]} \\text{{ pm}}",
        ),
        (r"^(?:at|by) (\d{1,2}(?::\d\d)?(?: ?[ap]\.?m\.?)?)$", lambda match: match[1]),
        (r"^(?:in )?(?:the year )?(\d{3,4}) (?:ad|ce)$|^in (?:the year )?(\d{4})$", lambda match: match[1] or match[2]),
        (
            r"^(?:usd|us\$|cad|aud) ?(\d[\d,]*(?:\.\d+)?)$|^(\d[\d,]*(?:\.\d+)?) ?(?:usd|us dollars)$",
            lambda match: f"{match[1] or match[2]} \\text{{ dollars}}",
        ),
        (r"^(?:eur) ?(\d[\d,]*(?:\.\d+)?)$", lambda match: f"{match[1]} \\text{{ euros}}"),
        (r"^(?:rs\.?|inr) ?(\d[\d,]*(?:\.\d+)?)$", lambda match: f"{match[1]} \\text{{ rupees}}"),
        (r"^(?:infinitely many|an infinite number of|infinite)(?: [a-z]+)?$", lambda match: "\\infty"),
        (r"^(?:none|nothing|zilch)(?: of them| at all)?$", lambda match: NONE),
        (
            (
                r"^(?:an? )?(\d+(?:\.\d+)?\\?%|\d+ percent) (increase|decrease|discount|reduction|rise|drop|loss|"
                r"profit|gain|chance|probability)$"
            ),
            lambda match: f"{match[1]}\\text{{ {match[2]}}}",
        ),
        (
            (
                r"^(?:an? )?(increase|decrease|discount|reduction|rise|drop|loss|profit|gain) (?:of|"
                r"by) (\d+(?:\.\d+)?\\?%)$"
            ),
            lambda match: f"{match[2]}\\text{{ {match[1]}}}",
        ),
        (
            (
                r"^(?:after|in|for|within the first) (\d+(?:\.\d+)? (?:hours?|minutes?|seconds?|days?|weeks?|months?|"
                r"years?))$"
            ),
            lambda match: match[1].replace(" ", " \\text{ ") + "}",
        ),
        (
            (
                r"^(\d+(?:\.\d+)? (?:km|miles?|m|meters?|feet|ft|cm|kilometers?|yards?)) (?:away|apart|long|wide|tall|"
                r"high|deep)$"
            ),
            lambda match: match[1].replace(" ", " \\text{ ") + "}",
        ),
    )
)
_HINT = re.compile(r"(?<![\\A-Za-z])(?:[a-z]{2,}|0[bo]\d)|[€$]|\d-\d\d-\d\d")
_NO_SAYING = re.compile(r"\\(?!text|mbox|mathrm|[dt]?frac|[%$ ,;])|[\^=<>|\[]")


def in_signs(text: str) -> str | None:
    """An answer in words, translated to signs; None if it is no saying."""
    if len(text) > MAX_SAYING or _HINT.search(text.lower()) is None:
        return None
    if _NO_SAYING.search(text) is not None:
        return None
    bare = " ".join(_TEXT.sub(r" \1 ", text).replace("\\ ", " ").replace("$", "").split()).strip(" .,").lower()
    for pattern, say in _PHRASES:
        match = pattern.match(bare)
        if match is not None and (found := say(match)) != bare:
            return found
    return range_in_signs(bare)
