r"""Cuts a clean text into tokens: numbers keep their digit groups, words differ from products of letters.

Example:

    tokens(r"2\sin x", Grouping.OUTSIDE)     # num 2, cmd \sin, let x, end
"""

import enum
import re
import string
from dataclasses import dataclass
from fractions import Fraction

from slime_reward_math.read.names import (
    CONDITIONS,
    CONSTANTS,
    FUNCTIONS,
    JOINS,
    ORDINALS,
    SPACES,
    TEXT,
    UPRIGHT,
    joined,
    part_behind,
)
from slime_reward_math.tree import listed
from slime_reward_math.value.units import is_unit, is_unit_text

MAX_TOKENS = 1_200
"""Maximum tokens: published gold answers have fewer than 300."""
MAX_DIGITS = 4_000
"""Digits of a number; Python itself refuses more than 4,300."""


class Unread(Exception):
    """The text cannot be read as an answer; the message says why, in a few countable words."""


@dataclass(slots=True)
class Token:
    """One token, never modified, so that tokens of common signs are shared.

    It has slots, because a token is made once and read about 30 times, and a tuple's fields take twice as long to read.
    """

    kind: str
    """`num`, `cmd`, `let`, `up` (an upright letter), `text`, `sym` or `end`."""
    text: str
    """Its text: a command with its backslash, a text without its `\\text{}`."""
    spaced: bool = False
    """Whether a visible gap stood before it."""


class Grouping(enum.Enum):
    """Where a comma before three digits groups digits; elsewhere it separates."""

    OUTSIDE = "outside"
    """Outside of brackets: `1,234` is a number, `(1,234)` a pair."""
    NOWHERE = "nowhere"
    """Nowhere: `1,234` is a list of two."""
    EVERYWHERE = "everywhere"
    """Everywhere: `(1,234, 5)` is a pair."""


_TOKEN = re.compile(
    r"(?P<num>\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+(?![\d.]))?|\.\d+)"
    r"|(?P<cmd>\\[A-Za-z]+|\\.)|(?P<word>[A-Za-z]+)|(?P<gap>\s+|~)|(?P<sym><=|>=|!=|<>|==|=>|->|\*\*|\.\.+|[^\w\s]|_)",
    re.ASCII,
)
_OPENING = frozenset({"(", "[", "\\{", "\\langle"})
_CLOSING = frozenset({")", "]", "\\}", "\\rangle"})
_OTHER_NAMES = {"\\lbrace": "\\{", "\\rbrace": "\\}", "\\lbrack": "[", "\\rbrack": "]"}
_UNSEEN = frozenset({"\\color", "\\textcolor", "\\colorbox", "\\hspace", "\\vspace", "\\tag", "\\label", "\\phantom"})
_PLAIN_NAMES = frozenset(
    {"pi", "infinity", "infty", "inf", "oo", "sqrt", "undefined", "DNE", "alpha", "beta", "theta", "lambda", "cup"}
    | {"times", "cdot", "frac", "binom"}
    | FUNCTIONS
) - {"lb", "deg", "det", "dim", "Re", "Im", "tr", "lg", "tg", "arg", "rank", "abs_", "sup"}
_GLUED = re.compile(r"(sin|cos|tan|cot|sqrt|log|ln|pi)([a-zA-Z]{1,2})$")
_GLUED_COMMAND = re.compile(r"\\(?:qquad|quad|cdot(?!s)|times|pi(?!tch)|infty)(?=[A-Za-z])")
_ENGLISH = JOINS | CONDITIONS | ORDINALS | {"is", "are", "of", "to", "in", "by", "no", "not", "per", "the", "if", "yes"}
_ENGLISH |= {"am", "pm", "all", "too", "off"}
_OPENERS = frozenset({"We", "So", "It", "An"})
_PROSE = listed(
    """a an he she we at most almost up be as so they has had on do my me us go off old our its it too out one two few
    low far any yet big"""
)
_COMMON = (
    "frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "infty", "cup", "sin", "cos", "ln", "log", "pm", "le",
)  # fmt: skip
_SHARED = {
    **{letter: Token("let", letter) for letter in string.ascii_letters},
    **{sign: Token("sym", sign) for sign in (*string.punctuation.replace("~", ""), "<=", ">=")},
    **{digit: Token("num", digit) for digit in string.digits},
    **{f"\\{name}": Token("cmd", f"\\{name}") for name in (*_COMMON, "{", "}")},
}
_END = Token("end", "")
_SPLIT = re.compile(r"(?:^|(?<=\s))\s*(and|or)\s*(?:$|(?=\s))|(,)(?=\s\S)")
_CHOICES = re.compile(r"[A-J](?:(?:, and|, or|,| and| or| &) ?[A-J]){1,9}")
_WITHIN_WORDS = re.compile(r"(?<=[a-z])-(?=[a-z]{2})|(?<=[a-z])'(?=s\b)")
_VOWELS = frozenset("aeiouyAEIOUY")


def tokens(text: str, grouping: Grouping) -> list[Token]:
    """The text's tokens, `end` last.

    Raises:
        Unread: there are too many, a number is too long, or a character belongs to no mathematics.
    """
    return _Cutter(text, grouping).cut()


class _Cutter:
    """Walks over a text once."""

    def __init__(self, text: str, grouping: Grouping, prose: bool = False) -> None:
        self._text, self._grouping, self._prose = text, grouping, prose
        self._found: list[Token] = []
        self._place, self._gap = 0, False
        self._depth, self._counted = 0, 0

    def cut(self) -> list[Token]:
        while self._run():
            pass
        self._found.append(_END)
        return self._found

    def _run(self) -> bool:
        """Cut to the end, or to a piece that consumed more or less than its match; returns whether text is left."""
        found = self._found
        for match in _TOKEN.finditer(self._text, self._place):
            piece = match[0]
            token = _SHARED.get(piece)
            if token is not None and not self._gap and not self._prose:
                found.append(token)
            elif piece != " ":
                self._place = end = match.end()
                self._take(match.lastgroup or "", piece)
                if len(found) > MAX_TOKENS:
                    break
                if self._place != end:
                    return True
        if len(found) > MAX_TOKENS:
            raise Unread("too many tokens")
        return False

    def _take(self, kind: str, text: str) -> None:
        if kind == "num":
            self._number(text)
        elif kind == "cmd":
            self._command(text)
        elif kind == "gap":
            self._gap = self._gap or text == "~"
        elif kind == "word" and self._prose and text.lower() in _PROSE:
            self._prosaic(text)
        elif kind == "word" and len(text) > 1:
            self._word(text)
        else:
            self._add("sym" if kind == "sym" else "let", text)

    def _add(self, kind: str, text: str) -> None:
        self._found.append(Token(kind, text, self._gap))
        self._gap = False

    def _number(self, text: str) -> None:
        if len(text) > MAX_DIGITS:
            raise Unread("a number with too many digits")
        if "," not in text:
            self._add("num", text)
        elif self._groups():
            self._add("num", text.replace(",", ""))
        else:
            first, *rest = text.split(",")
            self._add("num", first)
            for part in rest:
                self._add("sym", ",")
                self._add("num", part)

    def _groups(self) -> bool:
        if self._grouping is Grouping.OUTSIDE:
            for token in self._found[self._counted :]:
                if token.kind == "sym" or token.kind == "cmd":
                    self._depth += (token.text in _OPENING) - (token.text in _CLOSING)
            self._counted = len(self._found)
            return self._depth <= 0
        return self._grouping is Grouping.EVERYWHERE

    def _command(self, text: str) -> None:
        glued = _GLUED_COMMAND.match(text)
        if glued:
            self._place -= len(text) - glued.end()
            text = glued[0]
        if text in _UNSEEN and self._text[self._place : self._place + 2].lstrip("*")[:1] == "{":
            self._argument()
        elif text in SPACES:
            self._gap = True
        elif text in TEXT:
            self._language(self._argument(), upright=False)
        elif text in UPRIGHT:
            self._language(self._argument(), upright=True)
        else:
            text = _OTHER_NAMES.get(text, text)
            self._add("cmd" if text[0] == "\\" else "sym", text)

    def _argument(self) -> str:
        """The braced argument that follows, without its braces; the next character if there is no brace."""
        text, start = self._text, self._place
        while start < len(text) and text[start] in " *":
            start += 1
        if start >= len(text) or text[start] != "{":
            self._place = min(start + 1, len(text))
            return text[start : self._place]
        depth = 0
        for place in range(start, len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                self._place = place + 1
                return text[start + 1 : place]
        raise Unread("a brace that is not closed")

    def _language(self, content: str, upright: bool) -> None:
        r"""The argument of `\text` or `\mathrm`: language, a unit, a name, or mathematics in disguise."""
        content = content.strip().strip("~").replace("\\,", " ").replace("~", " ").strip()
        if content.endswith(".") and content[-2:-1].isalnum():
            content = content[:-1]
        name = content.lstrip("\\")
        if not content:
            self._gap = True
        elif len(name) == 1 and name.isalpha():
            self._add("up", name)
        elif self._is_unit(name):
            self._text_token(name)
        elif content.isalpha() and content.isupper() and 1 < len(content) < 5 and content not in ("AM", "PM", "DNE"):
            # The name of a segment or an angle.
            for letter in content:
                self._add("let", letter)
        elif name in FUNCTIONS or (upright and name in CONSTANTS):
            self._add("cmd", "\\" + name)
        elif content in (",", ";"):
            self._add("sym", content)
        elif content == ".":
            self._gap = True
        elif _CHOICES.fullmatch(content):
            self._found.extend(_Cutter(content, self._grouping).cut()[:-1])
        elif (
            content.isalpha()
            and content[0].isupper()
            and len(content) < 4
            and self._text[self._place : self._place + 1] in ("^", "_")
        ):
            # A chemical formula: `\text{CO}_2`.
            for letter in content:
                self._add("let", letter)
        elif is_unit_text(unit := _unit_text(content)):
            self._unit(unit)
        elif any(sign.isdigit() or sign in "\\$^=<>()[]+" for sign in content):
            prose = _WITHIN_WORDS.sub(lambda sign: " " if sign[0] == "-" else "", content.replace("$", " "))
            self._found.extend(_Cutter(prose, self._grouping, prose=True).cut()[:-1])
        else:
            self._text_token(content)

    def _unit(self, text: str) -> None:
        last = self._found[-1] if self._found else None
        if last is not None and last.kind == "text" and last.text not in JOINS:
            self._found[-1] = Token("text", f"{last.text} {text}", last.spaced)
            self._gap = False
        else:
            self._add("text", text)

    def _prosaic(self, word: str) -> None:
        """Handle a short word, which is language only among other words; `a = 5` names a."""
        rest = self._text[self._place :].lstrip()
        if len(word) == 1 and not (rest[:2].isalpha() and rest[0].islower()):
            self._add("let", word)
        else:
            self._text_token(word)

    def _word(self, word: str) -> None:
        if len(word) > MAX_TOKENS:
            raise Unread("too many tokens")
        if word in _PLAIN_NAMES and not self._is_unit(word):
            self._add("cmd", "\\" + word)
        elif not self._prose and (glued := _GLUED.match(word)):
            self._add("cmd", "\\" + glued[1])
            for letter in glued[2]:
                self._add("let", letter)
        elif word.lower() in _ENGLISH or word in _OPENERS or self._is_unit(word) or _looks_english(word):
            self._text_token(word)
        elif self._prose and len(word) > 2 and word[1:].islower() and self._apart(word):
            # In a sentence any run of letters is a word: `eggs`.
            self._text_token(word)
        else:
            for letter in word:
                self._add("let", letter)

    def _apart(self, word: str) -> bool:
        before = self._place - len(word) - 1
        return before < 0 or self._text[before].isspace()

    def _part(self, part: Fraction, rest: str) -> None:
        """`2 and a half` as a sum, and the words behind it."""
        for kind, sign in (("sym", "+"), ("num", str(part.numerator)), ("sym", "/"), ("num", str(part.denominator))):
            self._add(kind, sign)
        if rest.strip():
            self._text_token(rest.strip())

    def _is_unit(self, word: str) -> bool:
        last = self._found[-1] if self._found else _END
        behind = last.kind in ("num", "text") or last.text in (")", "}", "]", "|", "!", "\\pi", "/")
        return behind and is_unit(word)

    def _text_token(self, content: str) -> None:
        content = joined(content)
        if content.startswith("and ") and self._found and self._found[-1].kind == "num":
            fraction = part_behind(content)
            if fraction is not None:
                self._part(*fraction)
                return
        parts = _SPLIT.split(content)
        if 1 < len(parts) < 40 and content not in JOINS:
            for part in parts:
                if part and part.strip():
                    self._text_token(part.strip())
            return
        words = " ".join(content.replace("-", " ").replace(".", "").strip(" .:?!\"'").lower().split())
        last = self._found[-1] if self._found else None
        if last is not None and last.kind == "text" and last.text not in JOINS and words not in JOINS:
            self._found[-1] = Token("text", f"{last.text} {words}", last.spaced)
            self._gap = False
            return
        if words == "to":
            self._add("sym", ":")
        elif words and words not in (",", ";"):
            self._add("text", words)
        else:
            self._add("sym", content.strip()[:1] or ",")
        if content.rstrip().endswith((":", ",")) and words not in JOINS and words:
            self._add("sym", content.rstrip()[-1])


def _unit_text(content: str) -> str:
    r"""`J\cdot K^{-1}` as `j*k^-1`."""
    for sign, plain in (("\\cdot", "*"), ("\\,", " "), ("{", ""), ("}", "")):
        content = content.replace(sign, plain)
    return " ".join(content.lower().split())


def _looks_english(word: str) -> bool:
    """Whether a run of letters is a word, not a product: `Maximum`, but not `xyz`, `ABC` or `abcd`."""
    if len(word) < 3 or (word.isupper() and len(word) < 5):
        return False
    alphabetical = list(word) == sorted(word) and not (word[0].isupper() and word[1:].islower())
    return any(letter in _VOWELS for letter in word[1:]) and not alphabetical and len(set(word)) > 2
