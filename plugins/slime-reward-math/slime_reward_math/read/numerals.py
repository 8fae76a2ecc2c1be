r"""Reads numbers as they are written: decimals, repeating and cut off, mixed numbers, numerals of a base, number words.

Example:

    Numerals(tokens(r"2\frac{1}{3}", ...)).numeral()      # 2 + 1/3
"""

import re
from abc import abstractmethod
from fractions import Fraction

from slime_reward_math.read.operators import Operators
from slime_reward_math.read.tokens import Unread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number

MAX_EXPONENT = 400
"""Of ten, in scientific notation."""
FRACTIONS = frozenset({"\\frac", "\\dfrac", "\\tfrac", "\\cfrac", "\\nicefrac", "\\sfrac"})
"""Commands of a fraction."""
DOTS = frozenset({"\\ldots", "\\cdots", "\\dots", "...", "..", "\\dotsc"})
"""What says that something goes on."""
_LETTERED = re.compile(
    r"(?:\(|\\text\{)?([0-9A-F]{1,40})[)}]?_\{?(?:\()?(1[1-6])\)?\}?|0[xX]([0-9A-Fa-f]{1,40})", re.ASCII
)
_NUMBERS = {str(value): Fraction(value) for value in range(101)}
"""Most numbers that are read, made once."""
_PLAIN_ENDS = frozenset({"", ",", ";", ")", "]", "}", "\\}"})
"""What a plain item ends at; the empty text is the end's."""


def lettered(text: str) -> Tree | None:
    """A numeral with letters among its digits, `2A_{16}` and `0x2A`; None for anything else."""
    match = _LETTERED.fullmatch(text) if "_" in text or text[1:2] in ("x", "X") else None
    if match is None:
        return None
    digits, base = (match[1], int(match[2])) if match[1] else (match[3], 16)
    return None if match[1] and digits.isdecimal() else Node("base", (Words(digits.lower()), number(base)))


class Numerals(Operators):
    """The part of the reader that reads numbers."""

    @abstractmethod
    def atom(self) -> Tree:
        """One thing without what stands behind it."""

    @abstractmethod
    def fraction(self) -> Tree:
        """A fraction whose command is at hand."""

    def numeral(self) -> Tree:
        r"""A number and what belongs to it: `1\frac{1}{2}`, `3 1/2`, `101_2`, `0.333\ldots`."""
        whole = self.plain_number()
        if whole.places:
            if self.now.text in DOTS and (self.ahead().kind == "end" or self.ahead().text in (")", "}", ",", "=")):
                self.take()
                return Node("dots", (whole,))
            return whole
        if whole.value.denominator == 1:
            if self.now.kind == "cmd" and self.now.text in FRACTIONS:
                # Reading `\\frac32` splits its token: what is read a second time is what stood there.
                back, tokens = self.place, self.tokens.copy()
                part = self.fraction()
                if _is_proper(part):
                    return Node("+", (whole, part))
                self.tokens = tokens
                self.go(back)
            first, second, third = self.now, self.ahead(), self.ahead(2)
            if first.kind == "num" and second.text == "/" and third.kind == "num" and "." not in first.text:
                part = Node("/", (self.plain_number(), (self.take(), self.plain_number())[1]))
                if _is_proper(part):
                    return Node("+", (whole, part))
                raise Unread("two numbers side by side")
            if first.text == "." and second.text in ("\\overline", "\\dot", "\\bar"):
                self.take()
                return self._repeating(f"{whole.value}.", whole)
            if first.text == "_":
                return self.based(whole)
        return whole

    def plain_number(self) -> Num:
        """The number at hand and nothing else, but for the bar or the dots over its last digits."""
        text = self.take().text
        if text in _NUMBERS:
            return Num(_NUMBERS[text], 0, len(text))
        if text.isdecimal():
            return Num(Fraction(int(text)), 0, len(text))
        if "e" in text or "E" in text:
            exponent = int(text.lower().partition("e")[2][:8])
            if abs(exponent) > MAX_EXPONENT:
                raise Unread("a number that is too large")
        places = len(text.partition(".")[2]) if "e" not in text.lower() else 0
        found = Num(Fraction(text), places, len(text.replace(".", "").lstrip("0")))
        return self._repeating(text, found) if "." in text else found

    def plain(self) -> Tree | None:
        """A number or a letter that is all there is up to a comma or a closing bracket; None for anything else.

        Most items of lists, tuples and groups are, and need none of the questions that other things raise.
        """
        token, following = self.now, self.tokens[self.place + 1]
        if token.text == "-" and following.kind == "num" and self.tokens[self.place + 2].text in _PLAIN_ENDS:
            self.take()
            found = self.plain_number()
            return Num(-found.value, found.places, found.digits)
        if following.text not in _PLAIN_ENDS or following.kind == "text":
            return None
        if token.kind == "num":
            return self.plain_number()
        if token.kind == "let" and not token.spaced:
            self.take()
            return Sym(token.text)
        return None

    def grouped(self) -> Tree | None:
        """A number or a letter alone in the braces at hand; None for anything else."""
        token = self.ahead()
        if token.kind == "let":
            self.skip(3)
            return Sym(token.text)
        if token.kind != "num":
            return None
        self.take()
        found = self.plain_number()
        self.take()
        return found

    def _repeating(self, text: str, start: Num) -> Num:
        r"""`0.\overline{3}` and `0.1\dot{6}`."""
        if not (self.at("\\overline", "\\bar", "\\dot") and self._is_digits()):
            return start
        block = ""
        while self.at("\\overline", "\\bar", "\\dot") and self._is_digits():
            block += self.ahead(2).text
            self.skip(4)
        fixed = text.partition(".")[2]
        tail = Fraction(int(block), 10 ** len(fixed) * (10 ** len(block) - 1))
        return Num(start.value + tail)

    def _is_digits(self) -> bool:
        digits = self.ahead(2).text
        return self.ahead().text == "{" and self.ahead(3).text == "}" and digits.isdecimal() and len(digits) < 40

    def based(self, digits: Num) -> Tree:
        """Digits with the base that follows."""
        self.take()
        base = self.atom()
        if isinstance(base, Words | Rel):
            raise Unread("a base that is not a number")
        return Node("base", (digits, base))


def _is_proper(part: Tree) -> bool:
    """Whether a fraction of two written integers is below one: what a mixed number may hold."""
    if not (isinstance(part, Node) and len(part.args) == 2):
        return False
    above, below = part.args
    if not (isinstance(above, Num) and isinstance(below, Num)):
        return False
    return 0 < above.value < below.value and above.value.denominator == 1 and below.value.denominator == 1
