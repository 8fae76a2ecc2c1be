r"""The lowest layer of the reader: a position in a list of tokens, numbers, and operators with limits or rows.

Example:

    Operators(tokens(r"\sum_{k=1}^n k", ...)).series()      # Node("sum", (k, k, 1, n))

Depth and steps are bounded, so that no text makes the reader look far ahead for long.
"""

import re
from abc import abstractmethod
from fractions import Fraction
from types import TracebackType

from slime_reward_math.read.names import ENVIRONMENTS, GREEK, SILENT
from slime_reward_math.read.tokens import Token, Unread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number

MAX_DEPTH = 40
"""Nested brackets, braces and functions; each costs about nine Python frames."""
MAX_STEPS = 20_000
"""Tokens searched for closing brackets, so that no text makes the reader look far ahead for long."""
_AHEAD = 10


class Cursor:
    """Walks over tokens; style commands are not seen. `now` is an attribute, because it is read at every turn."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens = [each for each in found if each.kind != "cmd" or each.text not in SILENT]
        self.last = len(self.tokens) - 1
        """Where the end is; more ends stand behind it, so that looking ahead needs no bounds."""
        self.tokens += [self.tokens[-1]] * _AHEAD
        self.place, self.steps = 0, 0
        self.now = self.tokens[0]
        """The token at hand."""
        self.depth = 0
        """Open levels."""
        self.bars = 0
        """Open absolute values: a bar then closes one."""
        self.french = 0
        """Open brackets that a turned one closes: `]1, 2[`."""
        self.in_set = 0
        """Open set braces: a bar or a colon then opens the condition."""
        self.inside = _Level(self)
        """One level deeper: `with self.inside`."""
        self.fresh = _Brackets(self)
        """Within brackets, where bars and colons mean what they mean outside: `with self.fresh`."""

    def go(self, place: int) -> None:
        """Stand at a place."""
        if place > self.last:
            place = self.last
        self.place = place
        self.now = self.tokens[place]

    def skip(self, count: int) -> None:
        """Pass over that many tokens."""
        self.go(self.place + count)

    def ahead(self, count: int = 1) -> Token:
        """The token that many places on; `end` beyond the last."""
        return self.tokens[self.place + count]

    def take(self) -> Token:
        """The token at hand, passed over."""
        token = self.now
        place = self.place
        if place < self.last:
            self.place = place = place + 1
            self.now = self.tokens[place]
        return token

    def at(self, *texts: str) -> bool:
        """Whether a sign or command at hand is one of these."""
        token = self.now
        return token.text in texts and (token.kind == "sym" or token.kind == "cmd")

    def accept(self, *texts: str) -> bool:
        """Pass over the sign at hand if it is one of these."""
        token = self.now
        if token.text in texts and (token.kind == "sym" or token.kind == "cmd"):
            self.take()
            return True
        return False

    def expect(self, *texts: str) -> None:
        """Consume one of these signs, or raise Unread."""
        if not self.accept(*texts):
            raise Unread(f"no {texts[0]} where one belongs")

    def closing(self, opening: str, closing: str) -> int:
        """Where the bracket at hand is closed."""
        depth = 0
        for place in range(self.place, len(self.tokens)):
            token = self.tokens[place]
            if token.kind == "sym" or token.kind == "cmd":
                depth += (token.text == opening) - (token.text == closing)
                if depth == 0:
                    self._searched(place - self.place)
                    return place
        self._searched(len(self.tokens) - self.place)
        raise Unread("a bracket that is not closed")

    def half_open(self) -> bool:
        """Whether a round bracket closes the square one that was passed over: `[1, 2)`."""
        depth = 0
        for each in self.tokens[self.place :]:
            depth += (each.text == "(") - (each.text == ")")
            if depth < 0 or (depth == 0 and each.text in ("[", "]")):
                return depth < 0
        return False

    def _searched(self, count: int) -> None:
        self.steps += count
        if self.steps > MAX_STEPS:
            raise Unread("too many steps")


class _Level:
    """Counts a level; entered again and again, so that no object is made for it."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __enter__(self) -> None:
        cursor = self._cursor
        cursor.depth += 1
        if cursor.depth > MAX_DEPTH:
            raise Unread("too deeply nested")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.depth -= 1


class _Brackets:
    """Puts away what is open outside."""

    __slots__ = ("_cursor", "_saved")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._saved: list[tuple[int, int]] = []

    def __enter__(self) -> None:
        cursor = self._cursor
        cursor.depth += 1
        if cursor.depth > MAX_DEPTH:
            raise Unread("too deeply nested")
        self._saved.append((cursor.bars, cursor.in_set))
        cursor.bars = cursor.in_set = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.depth -= 1
        self._cursor.bars, self._cursor.in_set = self._saved.pop()


_ALIGNED = frozenset({"aligned", "align", "align*", "split", "gathered", "eqnarray"})


class Operators(Cursor):
    """The part of the reader for operators with limits or a bound variable, and for rows."""

    @abstractmethod
    def additive(self) -> Tree:
        """A sum of signed terms."""

    @abstractmethod
    def term(self) -> Tree:
        """A product."""

    @abstractmethod
    def relation(self) -> Tree:
        """A chain of relations."""

    @abstractmethod
    def argument(self) -> Tree:
        """A command's argument."""

    @abstractmethod
    def cell(self) -> Tree:
        """One cell of a matrix or of a case distinction."""

    def _limits(self) -> tuple[Tree | None, Tree | None]:
        below: Tree | None = None
        above: Tree | None = None
        while self.at("_", "^"):
            low = self.take().text == "_"
            if self.at("{"):
                self.take()
                with self.fresh:
                    limit = self.relation()
                self.expect("}")
            else:
                limit = self.argument()
            below, above = (limit, above) if low else (below, limit)
        return below, above

    def series(self) -> Tree:
        """A sum or a product with its sign."""
        head = self.take().text[1:]
        below, above = self._limits()
        body = self.term()
        if isinstance(below, Rel) and below.ops == ("=",) and isinstance(below.terms[0], Sym) and above is not None:
            return Node(head, (body, below.terms[0], below.terms[1], above))
        return Node(f"call:{head}", tuple(each for each in (body, below, above) if each is not None))

    def limit(self) -> Tree:
        """A limit."""
        self.take()
        below, _ = self._limits()
        if isinstance(below, Rel):
            below = Rel(("to",) * len(below.ops), below.terms)
        body = self.term()
        return Node("call:lim", (body,) if below is None else (body, below))

    def integral(self) -> Tree:
        """An integral; without a `dx` its variable is undefined."""
        head = self.take().text[1:]
        below, above = self._limits()
        variable = self._differential()
        body: Tree = number(1)
        if not self.at("\\differential"):
            body = self.additive()
        self.accept("\\differential")
        limits = tuple(each for each in (below, above) if each is not None)
        return Node(f"call:{head}", (body, Sym(variable), *limits))

    def _differential(self) -> str:
        """The variable of integration; its `dx` is taken out of the tokens."""
        for place in range(self.place, len(self.tokens) - 1):
            first, second = self.tokens[place], self.tokens[place + 1]
            names = second.kind == "let" or (second.kind == "cmd" and second.text[1:] in GREEK)
            if first.text == "d" and first.kind in ("let", "up") and names:
                previous = self.tokens[place - 1].text if place else ""
                marker = [Token("cmd", "\\differential")]
                if self._in_fraction(place):
                    marker = [Token("num", "1")] if previous in ("{", "\\cdot", "*", "\\times") else []
                self.tokens[place : place + 2] = marker
                self.go(self.place)
                return second.text.lstrip("\\")
        return "undefined"

    def _in_fraction(self, place: int) -> bool:
        depth = 0
        for each in self.tokens[self.place : place]:
            depth += (each.text == "{") - (each.text == "}")
        return depth > 0

    def environment(self) -> Tree:
        r"""An environment that `\begin` opens."""
        self.take()
        name = self._environment_name()
        if name in ("array", "alignedat") and self.at("{"):
            self.go(self.closing("{", "}") + 1)
        if name in _ALIGNED:
            self._unaligned()
        rows: list[Tree] = []
        cells: list[Tree] = []
        with self.fresh:
            while not self.at("\\end"):
                if self.accept("\\\\", "\\cr"):
                    rows.append(Node("row", tuple(cells)))
                    cells = []
                elif self.accept("&", "\\hline"):
                    continue
                elif self.now.kind == "end":
                    raise Unread("an environment that is not closed")
                else:
                    cells.append(self.cell())
        self.take()
        self._environment_name()
        rows += [Node("row", tuple(cells))] if cells else []
        if all(isinstance(row, Node) and len(row.args) == 1 and isinstance(row.args[0], Rel) for row in rows):
            # Any environment that holds only relations is a system of equations.
            return Node("list", tuple(row.args[0] for row in rows if isinstance(row, Node)))
        if name in ("cases", "dcases", "rcases", "array"):
            rows = [_split_case(row) for row in rows]
        if name in ("cases", "dcases", "rcases") or (name == "array" and rows and all(map(_is_case, rows))):
            return Node("cases", tuple(rows))
        if name in ("vmatrix", "Vmatrix"):
            return Node("call:det", tuple(rows))
        if name.rstrip("*") in ("aligned", "align", "split", "gathered", "alignedat", "eqnarray"):
            return Node("list", tuple(cell for row in rows if isinstance(row, Node) for cell in row.args))
        return Node("matrix", tuple(rows))

    def _unaligned(self) -> None:
        """Drop the signs that only align: `&`, and the end of a line before a sign that continues it."""
        place = self.place
        while self.tokens[place].text not in ("\\end", "\\begin") and self.tokens[place].kind != "end":
            text, following = self.tokens[place].text, self.tokens[place + 1].text
            following = self.tokens[place + 2].text if following == "&" else following
            if text == "&" or (text == "\\\\" and following in ("=", "\\approx")):
                del self.tokens[place]
            else:
                place += 1
        self.last = next(at for at, each in enumerate(self.tokens) if each.kind == "end")
        self.go(self.place)

    def _environment_name(self) -> str:
        self.expect("{")
        name = ""
        while not self.at("}"):
            if self.now.kind == "end":
                raise Unread("an environment without a name")
            name += self.take().text
        self.take()
        if name not in ENVIRONMENTS:
            raise Unread("an unknown environment")
        return name


def _is_case(row: Tree) -> bool:
    """Whether a row of an array gives a value and its case: `1, & n = 1`."""
    if not (isinstance(row, Node) and len(row.args) == 2):
        return False
    when = row.args[1]
    return isinstance(when, Rel | Words) or (isinstance(when, Node) and when.head == "given")


def _split_case(row: Tree) -> Tree:
    """`3, n = 1` in one cell as the two cells that it means."""
    cell = row.args[0] if isinstance(row, Node) and len(row.args) == 1 else None
    if isinstance(cell, Node) and cell.head == "given" and len(cell.args) == 2:
        return Node("row", cell.args)
    return row


MAX_EXPONENT = 400
"""Largest exponent in scientific notation."""
FRACTIONS = frozenset({"\\frac", "\\dfrac", "\\tfrac", "\\cfrac", "\\nicefrac", "\\sfrac"})
"""Commands of a fraction."""
DOTS = frozenset({"\\ldots", "\\cdots", "\\dots", "...", "..", "\\dotsc"})
"""Dots that continue a sequence."""
_LETTERED = re.compile(
    r"(?:\(|\\text\{)?([0-9A-F]{1,40})[)}]?_\{?(?:\()?(1[1-6])\)?\}?|0[xX]([0-9A-Fa-f]{1,40})", re.ASCII
)
_NUMBERS = {str(value): Fraction(value) for value in range(101)}
_PLAIN_ENDS = frozenset({"", ",", ";", ")", "]", "}", "\\}"})


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
                # Reading `\\frac32` splits its token, so restore the tokens before a second reading.
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
        """The number at hand alone, with the bar or the dots over its last digits."""
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

        Most items of lists, tuples and groups are plain, so this skips all other checks.
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
