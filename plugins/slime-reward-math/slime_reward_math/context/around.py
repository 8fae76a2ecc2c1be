r"""Around: what a box says in the sentence and the formula that it stands in.

Example:

    around(r"The answer is twice $\boxed{5}$.", 0, 21, 29, "5").text      # r"\text{twice }5"
"""

import re
from typing import NamedTuple

from slime_reward_math.context.after import REACH, refused
from slime_reward_math.context.before import PLAIN, before_box, changing, denied
from slime_reward_math.context.conditions import conditional_before
from slime_reward_math.context.formula import equation, formula
from slime_reward_math.value.units import is_unit, measure

_FRAME = " \n\t$)]\\.*_}"
"""What only closes the formula or the sentence of a box."""
_UNIT = re.compile(
    r"(?:[\s$~]|\\[,; ])*(?:\\(?:text|mathrm|mbox)\{\s*([A-Za-z/^\d ]{1,20}?)\s*\}|((?:(?:square|cubic|sq|cu)\.? "
    r")?[A-Za-z]{2,14})\b)"
)
_OPENINGS, _CLOSINGS = ("$", "\\[", "\\(", "="), ("$", "\\]", "\\)")
"""Between these a box is a formula of its own."""


_SCALE = re.compile(
    r"(?:[\s$)~*_]|\\[,; ]|\\\))*(?:\\(?:text|mathrm|mbox)\{\s*)?"
    r"((?:hundred|thousand|million|billion|trillion|dozen)\b(?: (?:of )?[a-z]+)?)(?! (?:more|less|fewer))"
)
"""What multiplies a box that it follows: `\boxed{5} million dollars`."""
_PARTS = re.compile(r"\}?\$?(?:\^?\{?\\(?:text|mathrm)\{)?(?:rds|ths|nds|th of|rd of)\b")
"""What makes a part of a box that it is glued to: `\boxed{3}rds`."""
BEFORE = 160
"""Characters before a box that are looked at."""
_STRIKES, _STRUCK = ("~~", "<s>", "<del>", "<strike>", "\\sout{", "cancel{"), re.compile(r"[ $]*(?:~~|</|\})")
"""What strikes a box out."""
_SUPPOSED = re.compile(r"(?i)(?:if|assuming|suppos\w+|ignoring|neglecting|without|had|were|naively|treating)\b")
_BUT = re.compile(r"[^.\n]{0,60}?[,;] (?:but|yet|however|except)\b|[^.\n]{0,60}\. (?:But|However|Yet)\b")
"""What a supposition is, and how it is given up."""
_CASE = r"(?:if|when|for|in (?:the )?(?:first |second |other )?case|case \w+:?|with|without)\b"
_PERCENT_OF = re.compile(r"(?:\d\s?\\?%|percent)\$? of \$?$")
_ONE_CASE = re.compile(rf"(?i)(?:and |so |thus |then |now |- )?{_CASE}")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?;])\s+|\n+\s*(?:[-*] )?")
_OTHER_CASE = re.compile(
    rf"(?i)[\s$).;,]*(?:and |but |while |whereas )?{_CASE}(?! you)[^.\n]{{0,80}}?(?:\bis|\bget|=|\bare|\bgives|"
    r"\bhave|,|\bequals|\bit's|:)"
    r"[\s$(\\]*(?:boxed\{)?-?(?:\d|[dt]?frac|no\b|none\b|zero\b)"
)
"""Two cases, each with a value: `if n is odd we get 4; if n is even, 8`."""
_NAMED = re.compile(r"([a-zA-Z](?:_\{?\w\}?)?)\s*=[^=<>]+")
_NAMED_NEXT = re.compile(
    r"(?:[\s$)\]]|\\[\])])*(?:,|;|\band\b|\bor\b|&|\\q?quad|\\text\{ ?(?:and|or) ?\})(?:[\s$(,]|\\[(,; ]|and\b|or\b)*"
    r"([a-zA-Z](?:_\{?\w\}?)?\s*=\s*(?:-?\d+(?:\.\d+)?(?:/\d+)?|"
    r"-?\\[dt]?frac\{\d+\}\{\d+\}))(?=[\s$)\]\\]*(?:[.,;]|$|\n|and\b|or\b))"
)
"""Another named value right behind a box that holds one: `\boxed{a=5}, b = 7`."""


class Around(NamedTuple):
    """A box with what stands around it."""

    text: str | None
    """What the box says there; None where its sentence denies it."""
    negated: bool = False
    """Whether it is the words before the box that deny it."""


def _unit(after: str) -> str:
    r"""The unit that stands right behind a box, as `\text{}`; nothing without one."""
    match = _UNIT.match(after)
    if match is None:
        return ""
    word = match[1] or match[2]
    known = word != "per" and (is_unit(word) or ((match[1] or " " in word) and measure(word) is not None))
    return rf"\text{{ {word}}}" if known else ""


def _named_next(after: str, content: str) -> str:
    """The named values that go on a list which a box begins; nothing without one."""
    if _NAMED.fullmatch(content) is None:
        return ""
    found = ""
    while (match := _NAMED_NEXT.match(after)) is not None:
        found, after = f"{found}, {match[1]}", after[match.end() :]
    return found


def _struck(before: str, after: str) -> bool:
    """Whether a box is struck out, or only what a percentage is taken of."""
    last = before[-4:]
    if ("of" in last and _PERCENT_OF.search(before)) or last.endswith("{") or "~" in last or ">" in last:
        struck = _STRUCK.match(after) is not None and before.rstrip(" $").endswith(_STRIKES)
        return struck or _PERCENT_OF.search(before) is not None
    return False


def _withdrawn(before: str, after: str, content: str) -> bool:
    """Whether what follows a box takes it back, or holds of another case than the box does."""
    if refused(after, content) or _PARTS.match(after):
        return True
    return _OTHER_CASE.match(after) is not None and _ONE_CASE.match(_SENTENCE_ENDS.split(before)[-1]) is not None


def equated(after: str, content: str) -> tuple[str, str] | None:
    """The equation that a box with a name opens, with the named values behind it, and the text behind; else None."""
    found = equation(after, content)
    if found is None or _withdrawn("", found[1], found[0]):
        return None
    return found[0] + _named_next(found[1], found[0]), found[1]


def around(response: str, start: int, place: int, end: int, content: str) -> Around:
    """What a box says where it stands.

    Args:
        response: the model's text.
        start: where its answer begins.
        place: where the box begins.
        end: where it ends.
        content: what it holds.
    """
    after = response[end : end + REACH]
    closed = not after.strip(_FRAME)
    opened = response[max(start, place - 3) : place].rstrip().endswith(_OPENINGS)
    if closed and opened and response[max(start, place - 30) : place].rstrip(" \n\t$([\\").endswith(PLAIN):
        return Around(content)
    sentence = before_box(response, start, place)
    if sentence and (denied(sentence) or (_SUPPOSED.match(sentence) and _BUT.match(after))):
        return Around(None, negated=True)
    if sentence and conditional_before(sentence, content):
        return Around(None)
    before = response[max(start, place - BEFORE) : place]
    scale = None if closed else _SCALE.match(after)
    if _struck(before, after) or (not closed and scale is None and _withdrawn(before, after, content)):
        return Around(None)
    if opened and (closed or after.lstrip(" \n.").startswith(_CLOSINGS)):
        text = content
    else:
        text = formula(response, start, place, end, content) or content
    if text is content and scale is not None:
        text += rf"\text{{ {scale[1]}}}"
    elif text is content and not closed:
        text += _unit(after) if not any(sign.isalpha() for sign in content) else _named_next(after, content)
    words = changing(sentence) if sentence and text.startswith(content) else ""
    return Around(rf"\text{{{words} }}{text}" if words else text)
