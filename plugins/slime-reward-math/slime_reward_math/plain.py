r"""Answers as text: numbers, choices and words that are compared before anything is read as mathematics.

Example:

    squeeze(r"\left( 1, 2 \right)") == squeeze("(1,2)")      # True
    same_words("friday", "it will be friday")      # True

Words are in lower case, without articles and the endings of plurals.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from slime_reward_math.tree import listed

_STYLE = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|[bB]igg?[lrm]?)(?![a-zA-Z])|\\[!,;:> ]|\\q?quad(?![a-zA-Z])|~"
)
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_GAP = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|mathrm|mathbf|mathsf|operatorname|textbf)\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[+-]?\.\d+", re.ASCII)
_LANGUAGE = re.compile(r"(?<![\\A-Za-z])(?:[A-J](?![A-Za-z_^])|[A-Za-z]{2,})|\\text|\\m(?:box|athrm)|[^\x00-\x7f]")
_RATIO = re.compile(r"(-?)(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))", re.ASCII)
_SURD = re.compile(r"(-?)(?:(\d*)\\sqrt\{(\d+)\}|\\[dt]?frac\{(\d*)\\sqrt\{(\d+)\}\}\{(\d+)\})", re.ASCII)
_PERCENTAGE = re.compile(r"(\d{1,50}(?:\.\d{1,50})?) ?(\\?%)?", re.ASCII)
_ITEM = r"[(\[ ]*-?(?:\\[dt]?frac\{\d+\}\{\d+\}|\d+/\d+|\d+(?:\.\d+)?)[)\] ]*"
_LIST = re.compile(rf"{_ITEM}(?:,{_ITEM})*", re.ASCII)
_JOIN = re.compile(r"(?:, *)?\\(?:text|mathrm)\{ *(?:and|or) *\}")
_NO_BRACKETS = str.maketrans("", "", "()[]")
_LETTERS = re.compile(r"[^\W\d_]+(?:[ '\-][^\W\d_]+)*[.!]?")
_CHOICE = re.compile(r"[\(\[]?([A-J])[\)\]]?", re.ASCII)
_CHOSEN = re.compile(
    r"(?:(?i:the )?(?i:correct )?(?i:option|choice|answer)(?: is)?:? +)?"
    r"[\(\[]?([A-J])(?:[\)\]]|[.:)](?=\s|$|\\)|$)[.:]?(?:\s|\\|$)",
    re.ASCII,
)
_DENIED = re.compile(
    r"\s*(?:is|are|was|were|can|could|does|do|would|will|must|cannot|isn't|doesn't|won't|fails)\b[^.]{0,20}?"
    r"(?:\b(?:not|wrong|incorrect|false|impossible|invalid|out|excluded|eliminated|rejected)\b|n't)|\s*(?:fails?|"
    r"unless|except)\b"
)
_CHOSEN_TOO = re.compile(r"(?:\band|\bor|,|&)\s*[\(\[]?[A-J][\)\]]?[.]?\s*$", re.ASCII)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_LETTERED = re.compile(
    r"(?:[\(\[]?[A-J][.)\]](?:\s|\\[ ,;:])|\\(?:text(?:bf|rm)?|math(?:rm|bf)|mbox)\{\s*[\(\[]?[A-J][.)\]]\s*\})"
    r"(?:\s|\\[ ,;:]|\\quad|~)*([^\s\\].*|\\[a-zA-Z].*)",
    re.DOTALL,
)
_DECIMAL_COMMA = re.compile(r"([+-]?(?:0|\d{4,})),(\d{2,})|([+-]?\d{1,3}(?:\.\d{3})+),(\d+)", re.ASCII)
_GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)", re.ASCII)
_SAID = {"dne": "doe not exist", "no real solution": "no solution", "true": "yes", "false": "no"}
_REPLY = re.compile(
    r"(yes|true|no|false)[,.;:]\s+(.*)|(yes|true|no|false) ((?:it|there|they|he|she|this|that|we|because|since|"
    r"for)\b.*)",
    re.DOTALL,
)
_OPENED = re.compile(r"(yes|true|no|false)\b[,.;:]?\s+(.*)", re.DOTALL)
_HEDGED = (
    r"unless|except|excepting|excluding|but|only|if|when|whenever|provided|assuming|sometimes|not always|maybe|perhaps|"
    r"possibly|probably|otherwise|else|or|depend\w*|usually|often|generally|in (?:most|some|many)|mostly|partly|"
    r"partially|normally|typically|rarely|for (?:some|most|large|small|many)|almost|however|although|though|might|could"
)
_OTHERWISE = {"yes": re.compile(rf"\b(?:no|false|{_HEDGED})\b"), "no": re.compile(rf"\b(?:yes|true|{_HEDGED})\b")}
"""Text that must not follow a reply: the other reply, or a restriction of it."""
MAX_SURD = 80
"""Maximum characters of a root that is read here."""
MAX_PARTS = 40
"""Maximum numbers of a list without brackets; longer lists are compared in order."""
MAX_NUMBER = 1_000
"""Maximum characters of a number that is read here; longer ones go to the reader, which has bounds."""


def squeeze(text: str) -> str:
    """The text without pure formatting: bracket sizes, thin spaces, spaces around signs."""
    if "\\" in text or "~" in text:
        text = _FRACTION.sub(r"\\frac", _STYLE.sub(" ", text))
    return _GAP.sub("", text.strip()) if " " in text or "\n" in text or "\t" in text else text


def unwrapped(text: str) -> str:
    r"""The text with the arguments of `\text` and its like in place."""
    return _TEXT.sub(lambda match: f" {match[1]} ", text).strip() if "\\" in text else text


def number(text: str) -> Fraction | int | None:
    r"""The value of a plain integer, decimal, `a/b` or `\frac{a}{b}`; None for anything else."""
    if len(text) > MAX_NUMBER:
        return None
    if text.isdecimal():
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is not None:
        return Fraction(text.replace(",", ""))
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    above, below = int(match[2] or match[4]), int(match[3] or match[5])
    if not below:
        return None
    return Fraction(-above if match[1] else above, below)


def square(text: str, value: Fraction | int | None) -> Fraction | None:
    r"""The square of a plain number or of `a\sqrt{b}` over c, negative for a negative one; None for anything else.

    If two squares differ, the answers differ, and no parsing is needed.
    """
    if value is not None:
        exact = Fraction(value)
        return exact * abs(exact)
    match = _SURD.fullmatch(text) if len(text) <= MAX_SURD and "\\sqrt" in text else None
    if match is None:
        return None
    factor, radicand, below = int(match[2] or match[4] or 1), int(match[3] or match[5]), int(match[6] or 1)
    if not below:
        return None
    found = Fraction(factor * factor * radicand, below * below)
    return -found if match[1] else found


def same_percentage(gold: str, answer: str) -> bool | None:
    """Whether two plain numbers agree of which one or both have a percent sign; None for anything else.

    A gold with the sign takes the number without it, or the hundredth; one without takes a percentage's hundredth, and,
    from 1 on, the percentage itself: 0.25 is not 0.25 %.
    """
    left, right = _PERCENTAGE.fullmatch(gold), _PERCENTAGE.fullmatch(answer)
    if left is None or right is None or not (left[2] or right[2]):
        return None
    one, two = Fraction(left[1]), Fraction(right[1])
    if left[2]:
        return one == two or (not right[2] and one == 100 * two)
    return 100 * one == two or (one == two and one >= 1)


def same_list(gold: str, answer: str) -> bool | None:
    """Whether two answers list the same numbers; None where one holds anything else, or where brackets decide.

    Without brackets, lists of plain numbers are equal in any order. Within brackets order may count, so only different
    numbers decide: the answers then differ in any order.
    """
    left, right = _listed(gold), _listed(answer)
    if left is None or right is None or len(left.values) == len(right.values) == 1:
        return None
    if set(left.values) != set(right.values):
        # 0.33 may be 1/3, rounded; the rule for rounding needs trees.
        rounded = (left.decimals and right.ratios) or (left.ratios and right.decimals)
        return None if rounded else False
    if left.bracketed or right.bracketed:
        return None
    one, two = sorted(left.values), sorted(right.values)
    if 1 in (len(one), len(two)):
        # `3/4 or 0.75` gives one value twice.
        return True
    return one == two or (len(two) > len(one) and one == sorted(set(two)))


class _List(NamedTuple):
    values: list[Fraction]
    bracketed: bool
    decimals: bool
    ratios: bool


def _listed(text: str) -> _List | None:
    if len(text) > MAX_NUMBER:
        return None
    if "\\" in text:
        text = _JOIN.sub(",", _STYLE.sub(" ", text))
    if _LIST.fullmatch(text) is None or may_group(text) or decimal_comma(text) is not None:
        return None
    bare = text.translate(_NO_BRACKETS)
    opened = text.count("(") + text.count("[")
    parts = bare.split(",")
    if (len(parts) > MAX_PARTS and not opened) or len(bare) != len(text) - 2 * opened:
        return None
    values = []
    for part in parts:
        value = number(part.strip())
        if value is None:
            return None
        values.append(Fraction(value))
    return _List(values, opened > 0, "." in text, "/" in text or "\\" in text)


def may_be_language(text: str) -> bool:
    """Whether a text may be words or a choice; a quick look, so that formulas are not searched for either."""
    return _LANGUAGE.search(text) is not None


def words(text: str) -> str | None:
    """The words of an answer in words only, in lower case and without articles; None for anything else."""
    if "\\" in text and _TEXT.sub("", text).strip():
        # Words behind a formula, not instead of one.
        return None
    bare = " ".join(unwrapped(text).split())
    if len(bare) < 2 or _LETTERS.fullmatch(bare) is None:
        return None
    if " and " in bare or " or " in bare:
        return None
    low = bare.rstrip(".!").replace("-", " ").casefold().split()
    said = " ".join(_singular(each) for each in low if each not in ("the", "a", "an"))
    return _SAID.get(said, said) or None


def reply(text: str) -> str | None:
    """The `yes` or `no` that opens an answer, unless the rest contradicts it; None without one."""
    match = _REPLY.fullmatch(unwrapped(text).casefold())
    if match is None:
        return None
    opening, rest = match[1] or match[3], match[2] or match[4]
    said = _SAID.get(opening, opening)
    return None if _OTHERWISE[said].search(rest) else said


def hedged(text: str) -> bool:
    """Whether an answer opens with `yes` or `no` and then restricts it."""
    match = _OPENED.match(unwrapped(text).casefold())
    return match is not None and _OTHERWISE[_SAID.get(match[1], match[1])].search(match[2]) is not None


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word


def choice(text: str) -> str | None:
    """The letter of a gold answer that is only a choice: `B`, `(B)`; None for anything else."""
    match = _CHOICE.fullmatch(unwrapped(text).strip())
    return match[1] if match else None


def chosen(text: str) -> str | None:
    r"""The letter that an answer chooses: `B`, `(B)`, `B. four`, `\text{(B)}\ 4`; None if it opens with no choice."""
    bare = unwrapped(text).replace("{", " ").replace("}", " ").strip()
    match = _CHOSEN.match(bare)
    if match is None or _CHOSEN_TOO.search(bare, match.end()) or _DENIED.match(bare, match.end(1) + 1):
        return None
    return match[1]


def may_group(text: str) -> bool:
    """Whether some comma may group digits or separate numbers."""
    return "," in text and _GROUPED.search(text) is not None


def after_choice(text: str) -> str | None:
    """`x = 42` of `C. x = 42`; None where no choice opens the text or nothing follows it."""
    match = _LETTERED.fullmatch(text)
    return match[1] if match else None


def opening_choice(text: str) -> str | None:
    """The letter of a choice that opens a text with its content: `C` of `C. x = 42`; else None."""
    match = _LETTERED.fullmatch(text)
    return next(sign for sign in _COMMAND.sub("", text) if sign in "ABCDEFGHIJ") if match else None


def decimal_comma(text: str) -> str | None:
    """`0.111` for `0,111`, `1000.5` for `1.000,5`: what is not a list and no digit group; else None."""
    match = _DECIMAL_COMMA.fullmatch(text)
    if match is None:
        return None
    return f"{match[1]}.{match[2]}" if match[1] else f"{match[3].replace('.', '')}.{match[4]}"


_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_MONTHS = "january february march april may june july august september october november december"
_SHORT = {
    **{each[:3]: each for each in (*_DAYS.split(), *_MONTHS.split())}, "tue": "tuesday", "tues": "tuesday",
    "wedne": "wednesday", "thur": "thursday", "thurs": "thursday", "sept": "september", "convergent": "converge",
    "divergent": "diverge", "converges": "converge", "diverges": "diverge", "converging": "converge",
    "diverging": "diverge", "increase": "increasing", "decrease": "decreasing",
}  # fmt: skip
_SAME = {
    "dne": "doe not exist", "no real solution": "no solution", "no real root": "no solution", "true": "yes",
    "false": "no", "not true": "no", "not correct": "no", "untrue": "no", "incorrect": "no", "never": "no",
    "not possible": "no", "not at all": "no", "certainly": "yes", "of course": "yes", "definitely": "yes",
    "indeed": "yes", "correct": "yes", "it is true": "yes", "it is false": "no", "it is not": "no",
    "it doe not": "no", "yep": "yes", "nope": "no", "it cannot be": "no", "it cannot": "no", "it can": "yes",
    "it doe": "yes", "it is": "yes", "absolutely": "yes", "affirmative": "yes", "right": "right", "always": "always",
    "it is possible": "yes", "empty set": "no solution", "none": "no solution", "has no solution": "no solution",
}  # fmt: skip
_SUBJECT = re.compile(
    r"^(?:(?:so|thus|hence|therefore) )?(?:serie|sequence|integral|limit|function|it|answer|final answer|equation|"
    r"inequality|system|statement|there|that|this|winner|day|month|color|shape|graph|figure|person|result|"
    r"quadrilateral|triangle|correct answer|they|he|she)(?:'s| is| are| ha| have| will be| would be| must be| will "
    r"fall on| fall on| was| were)?(?: called| known as)? "
)
_WHEN = re.compile(rf"^(?:on|in|next|this|coming|following|during|by) (?={'|'.join((_DAYS + ' ' + _MONTHS).split())})")
_LAST = re.compile(
    r" (?:absolutely|conditionally|altogether|too|indeed|strictly|one|ones|color|team|player|side|path|method)$"
)
_FIRST = re.compile(
    r"^(?:strictly|always|monotonically|absolutely|clearly|definitely|certainly|simply|just|only|exactly) (?=\w)"
)
_WINS = re.compile(
    r" (?:(?:will |can |must )?(?:always )?(?:win|won)(?: game| race| election| contest)?|is winner|ha(?:s|ve) winning "
    r"strategy|(?:will |can )force win|finishe[sd]? first|came first|come first|beat \w+|did it|is guilty|is (?:right|"
    r"correct|answer|winner|culprit|thief|liar|murderer|one)|(?:is|was) (?:\w+est|oldest|youngest|most \w+|first)(?: "
    r"\w+)?|ha(?:s|ve) most \w+)$"
)
"""Words that may follow a winner's name, without their endings."""
_NONE = re.compile(
    r"no such \w+(?: exist)?|none exist|no \w+ exist|no solution|no (?:real |integer |valid |positive )+(?:solution|"
    r"root|value)|(?:equation|system|it) ha(?:s|ve)? no (?:real )?solution|there (?:is|are) no (?:\w+ )?(?:solution|"
    r"value|root)|inconsistent"
)
_INFINITE = re.compile(r"(?:infinitely many|infinite number of|infinite)(?: \w+)?|unlimited")
_NEITHER = re.compile(r"neither(?: \w+ nor \w+|of them|of these|one)?$")
_KINDS = listed(
    """function number triangle quadrilateral sequence player condition angle line curve matrix graph point event
    variable prism polygon relation series"""
)


def same_words(gold: str, answer: str) -> bool:
    """Whether two results of `plain.words` mean the same."""
    if gold == answer:
        return True
    one, two = _core(gold), _core(answer)
    if one == two or _LAST.sub("", _FIRST.sub("", two)) == one:
        return True
    longer, shorter = (one, two) if len(one) > len(two) else (two, one)
    rest, _, last = longer.rpartition(" ")
    return rest == shorter and last in _KINDS


def _core(said: str) -> str:
    """Words without a listing's usual opening, without their subject, and without the verb behind a name."""
    if said in _SAME:
        return _SAME[said]
    first, _, rest = said.partition(" ")
    said = rest if rest and first in ("all", "every", "any") else said
    if _NONE.fullmatch(said):
        return "no solution"
    bare = _SUBJECT.sub("", said, count=1).replace("right angled", "right").replace("it's ", "")
    if _INFINITE.fullmatch(bare):
        return "infinity"
    if _NEITHER.fullmatch(bare):
        return "neither"
    bare = _WINS.sub("", _WHEN.sub("", bare))
    bare = " ".join(_SHORT.get(each, each) for each in bare.split())
    return _SAME.get(bare, bare)
