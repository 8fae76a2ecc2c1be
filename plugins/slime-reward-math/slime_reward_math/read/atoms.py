r"""Reads what expressions are made of: numbers, symbols, brackets, fractions, roots.

Example:

    Atoms(tokens(r"\frac12", ...)).atom()      # 1 / 2
"""

from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction

from slime_reward_math.read.names import ACCENTS, BLACKBOARD, CONSTANTS, GREEK
from slime_reward_math.read.operators import Operators
from slime_reward_math.read.tokens import Token, Unread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, is_constant, number
from slime_reward_math.value.units import is_short_unit

MAX_EXPONENT = 400
"""Of ten, in scientific notation."""
_ALWAYS_CALLED = frozenset("fghFGH") | {"\\phi", "\\psi", "\\Phi", "\\Psi", "\\Gamma"}
_FRACTIONS = frozenset({"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"})
_BINOMIALS = frozenset({"\\binom", "\\dbinom", "\\tbinom"})
_SMALL = {str(number): Fraction(number) for number in range(101)}
"""Most numbers that are read, made once."""
_PLAIN_ENDS = frozenset({"", ",", ";", ")", "]", "}", "\\}"})
"""What a plain item ends at; the empty text is the end's."""
_PAIRS = {
    "\\lfloor": ("\\rfloor", "floor"),
    "\\lceil": ("\\rceil", "ceil"),
    "\\lvert": ("\\rvert", "abs"),
    "\\lVert": ("\\rVert", "call:norm"),
    "\\|": ("\\|", "call:norm"),
    "\\Vert": ("\\Vert", "call:norm"),
}


class Atoms(Operators):
    """The part of the reader that reads single things."""

    @abstractmethod
    def factor(self) -> Tree:
        """A function's value, or an atom with what stands behind it."""

    @abstractmethod
    def items(self, *closing: str) -> tuple[Tree, ...]:
        """What stands before a closing bracket, split at commas; the bracket is passed over."""

    @abstractmethod
    def bracket(self) -> Tree:
        """What the bracket at hand encloses: a group, a tuple, an interval, a set."""

    @abstractmethod
    def is_function(self) -> bool:
        """Whether a function's name is at hand."""

    def atom(self) -> Tree:
        """One thing without what stands behind it."""
        token = self.now
        if token.kind == "num":
            return self._mixed(self._number())
        if token.kind in ("let", "up"):
            return self._letter()
        if token.kind == "sym":
            return self._sign()
        if token.kind == "cmd":
            return self._command()
        raise Unread("words where a value belongs" if token.kind == "text" else "an end where a value belongs")

    def plain(self) -> Tree | None:
        """A number or a letter that is all there is up to a comma or a closing bracket; None for anything else.

        Most items of lists, tuples and groups are, and need none of the questions that other things raise.
        """
        token, following = self.now, self.tokens[self.place + 1]
        if token.text == "-" and following.kind == "num" and self.tokens[self.place + 2].text in _PLAIN_ENDS:
            self.take()
            found = self._number()
            return Num(-found.value, found.places, found.digits)
        if following.text not in _PLAIN_ENDS or following.kind == "text":
            return None
        if token.kind == "num":
            return self._number()
        if token.kind == "let" and not token.spaced:
            self.take()
            return Sym(token.text)
        return None

    def _sign(self) -> Tree:
        token = self.now
        if token.text in ("(", "[", "{", "]"):
            with self.fresh:
                return self.bracket()
        if token.text == "|":
            return self._bars("|")
        if token.text.startswith(".."):
            self.take()
            return Sym("ldots")
        if token.text == "?" or token.text == "_":
            raise Unread("a sign that is no value")
        raise Unread("a sign where a value belongs")

    def _bars(self, closing: str) -> Tree:
        self.take()
        self.bars += 1
        with self.inside:
            inner = self.additive()
        self.expect(closing, "\\vert", "|")
        self.bars -= 1
        return Node("abs", (inner,))

    def _number(self) -> Num:
        text = self.take().text
        if text in _SMALL:
            return Num(_SMALL[text], 0, len(text))
        if text.isdecimal():
            return Num(Fraction(int(text)), 0, len(text))
        if "e" in text or "E" in text:
            exponent = int(text.lower().partition("e")[2][:8])
            if abs(exponent) > MAX_EXPONENT:
                raise Unread("a number that is too large")
        places = len(text.partition(".")[2]) if "e" not in text.lower() else 0
        found = Num(Fraction(text), places, len(text.replace(".", "").lstrip("0")))
        return self._repeating(text, found) if "." in text else found

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

    def _mixed(self, whole: Num) -> Tree:
        r"""A mixed number: `1\frac{1}{2}`, `3 1/2`; otherwise the number, or one with a base or a bar."""
        if whole.places == 0 and whole.value.denominator == 1:
            if self.now.kind == "cmd" and self.now.text in _FRACTIONS:
                back = self.place
                part = self._fraction()
                if _is_proper(part):
                    return Node("+", (whole, part))
                self.go(back)
            first, second, third = self.now, self.ahead(), self.ahead(2)
            if first.kind == "num" and second.text == "/" and third.kind == "num" and "." not in first.text:
                part = Node("/", (self._number(), (self.take(), self._number())[1]))
                if _is_proper(part):
                    return Node("+", (whole, part))
                raise Unread("two numbers side by side")
            if first.text == "." and second.text in ("\\overline", "\\dot", "\\bar"):
                self.take()
                return self._repeating(f"{whole.value}.", whole)
            if first.text == "_":
                return self._based(whole)
        return whole

    def _based(self, digits: Num) -> Tree:
        self.take()
        base = self.atom()
        if isinstance(base, Words | Rel):
            raise Unread("a base that is no number")
        return Node("base", (digits, base))

    def _letter(self) -> Tree:
        token = self.take()
        name = token.text + self.subscript()
        if self._is_inverse(token):
            self.skip(5)
            return self.application(name + "^-1")
        if self.at("(") and self._calls(token, name):
            return self.application(name)
        if self.at("{") and self.ahead().text == "(" and self.tokens[self.closing("{", "}") - 1].text == ")":
            self.take()
            found = self.application(name)
            self.expect("}")
            return found
        return Sym(name)

    def _is_inverse(self, token: Token) -> bool:
        """Whether `^{-1}(` follows a letter that means a function."""
        if self.now.text != "^" or token.text not in _ALWAYS_CALLED:
            return False
        return [self.ahead(count).text for count in range(1, 6)] == ["{", "-", "1", "}", "("]

    def _calls(self, token: Token, name: str) -> bool:
        """Whether the bracket after a letter holds arguments and is no factor."""
        if token.spaced:
            return False
        if token.text in _ALWAYS_CALLED:
            return True
        try:
            end = self.closing("(", ")")
        except Unread:
            return False
        inner = self.tokens[self.place + 1 : end]
        if any(each.text == "," for each in inner):
            return True
        following = self.tokens[min(end + 1, len(self.tokens) - 1)]
        start = self.place - 1 == 0 or self.tokens[self.place - 2].text in (",", ";", "(", "and", "or")
        return start and following.text in ("=", "<", ">", "\\le", "\\ge", "\\leq", "\\geq")

    def application(self, name: str) -> Tree:
        """An unknown function's value: `f(x, y)`."""
        self.expect("(")
        with self.fresh:
            arguments = self.items(")")
        if name == "C" and len(arguments) == 2:
            return Node("binom", arguments)
        if name == "Gamma" and len(arguments) == 1:
            return Node("factorial", (Node("+", (arguments[0], number(-1))),))
        return Node(f"call:{name}", arguments)

    def subscript(self) -> str:
        r"""`_1`, `_{n+1}`, `_{\mathrm{max}}` as text; nothing without one."""
        if not self.at("_"):
            return ""
        self.take()
        if not self.at("{"):
            return "_" + self.take().text.lstrip("\\")
        end = self.closing("{", "}")
        inner = [each.text.lstrip("\\") for each in self.tokens[self.place + 1 : end] if each.text not in ("{", "}")]
        self.go(end + 1)
        return "_" + "".join(inner)

    def _command(self) -> Tree:
        text = self.now.text
        if text in _FRACTIONS:
            return self._fraction()
        if text in _PAIRS:
            self.take()
            closing, head = _PAIRS[text]
            with self.fresh:
                inner = self.additive()
            self.expect(closing)
            return Node(head, (inner,))
        if text in ("\\vert", "\\mid"):
            return self._bars(text)
        if text in ("\\{", "\\langle"):
            with self.fresh:
                return self.bracket()
        handler = _HANDLERS.get(text)
        if handler is not None:
            with self.inside:
                return handler(self)
        return self._symbol()

    def _symbol(self) -> Tree:
        token = self.take()
        name = token.text[1:]
        if name in CONSTANTS:
            if name == "pi" and self.at("_", "("):
                return Sym("pi" + self.subscript())
            return Sym(CONSTANTS[name])
        if name in ("emptyset", "varnothing"):
            return Node("set", ())
        if name in ("ldots", "cdots", "dots", "vdots"):
            return Sym("ldots")
        if name in ("forall", "exists"):
            return Node(f"call:{name}", (self.relation(),))
        if name == "angle" or name == "triangle":
            return Node(f"call:{name}", (self.term(),))
        if name in GREEK:
            name = name.removeprefix("var")
            name += self.subscript()
            if self.at("(") and ("\\" + name in _ALWAYS_CALLED or self._calls(token, name)):
                return self.application(name)
            return Sym(name)
        raise Unread("an unknown command")

    def is_variable(self) -> bool:
        """Whether a command that names a variable or constant, or decorates one, is at hand."""
        token = self.now
        return token.kind == "cmd" and token.text in _VARIABLES

    def _accent(self) -> Tree:
        name = self.take().text[1:]
        if name in ("overset", "underset", "stackrel"):
            self.argument()
            return self.argument()
        head = {"overrightarrow": "vec", "widehat": "hat", "overline": "bar", "widetilde": "tilde"}.get(name, name)
        return Node(f"call:{head}", (self.argument(),))

    def _blackboard(self) -> Tree:
        self.take()
        inner = self.argument()
        if not isinstance(inner, Sym):
            raise Unread("a set of numbers without a name")
        name = BLACKBOARD.get(inner.name, inner.name)
        if self.at("^") and self.ahead().text in ("+", "*", "-"):
            self.skip(1)
            name += self.take().text
        elif self.at("_", "^") and self.ahead().text == "{" and self.ahead(3).text == "}":
            name += self.ahead(2).text
            self.skip(4)
        elif self.at("_") or (self.at("^") and self.ahead().kind in ("num", "let")):
            self.skip(1)
            name += self.take().text
        if name not in ("RR", "ZZ", "NN", "QQ", "CC"):
            name = {"ZZ+": "NN", "NN+": "NN", "NN*": "NN", "ZZ>0": "NN"}.get(name, name)
        return Sym(name)

    def argument(self) -> Tree:
        """A command's argument: a braced group, one digit, one letter, or one command."""
        token = self.now
        if token.kind == "num" and len(token.text) > 1 and "." not in token.text:
            self.tokens[self.place] = self.now = Token("num", token.text[1:])
            return number(int(token.text[0]))
        if token.kind == "num":
            return self._number()
        if token.kind == "let":
            self.take()
            return Sym(token.text)
        if self.at("-"):
            self.take()
            return Node("neg", (self.argument(),))
        if self.at("{"):
            if self.ahead().text == "}":
                raise Unread("an empty group")
            if self.ahead(2).text == "}" and self.ahead(2).kind == "sym":
                found = self._grouped()
                if found is not None:
                    return found
        if self.is_function():
            return self.factor()
        with self.inside:
            return self.atom()

    def _grouped(self) -> Tree | None:
        """A number or a letter alone in braces; None for anything else."""
        token = self.ahead()
        if token.kind == "let":
            self.skip(3)
            return Sym(token.text)
        if token.kind != "num":
            return None
        self.take()
        found = self._number()
        self.take()
        return found

    def _fraction(self) -> Tree:
        self.take()
        if self.ahead().text in ("d", "\\partial"):
            operator = self._operator()
            if operator:
                return Node("call:derivative", (self.term(), Sym(operator)))
            operator = self._derivative()
            if operator:
                above = self.argument()
                self.go(self.closing("{", "}") + 1)
                return Node("call:derivative", (above, Sym(operator)))
        above = self.argument()
        return Node("/", (above, self.argument()))

    def _operator(self) -> str:
        r"""The variable of `\frac{d}{dx}`, passed over; nothing for a fraction."""
        texts = [self.ahead(count).text for count in range(8)]
        sign = texts[1]
        if sign not in ("d", "\\partial") or texts[:1] + texts[2:5] != ["{", "}", "{", sign] or texts[6] != "}":
            return ""
        self.skip(7)
        return texts[5]

    def _derivative(self) -> str:
        r"""The variable of `\frac{d f(x)}{dx}`, its first d taken away; nothing for a fraction."""
        if not (self.at("{") and self.ahead().text in ("d", "\\partial") and self.ahead(2).text != "}"):
            return ""
        end = self.closing("{", "}")
        below = [self.tokens[min(end + count, len(self.tokens) - 1)] for count in range(1, 5)]
        if below[0].text != "{" or below[1].text != self.ahead().text or below[3].text != "}":
            return ""
        del self.tokens[self.place + 1]
        return below[2].text.lstrip("\\")

    def _binomial(self) -> Tree:
        self.take()
        above = self.argument()
        return Node("binom", (above, self.argument()))

    def _root(self) -> Tree:
        degree: Tree = number(3 if self.take().text == "\\cbrt" else 2)
        if self.at("["):
            self.take()
            with self.fresh:
                degree = self.additive()
            self.expect("]")
        return Node("root", (self.argument(), degree))

    def unit_ends(self, left: Tree) -> bool:
        r"""Whether the letters at hand are a unit that ends the answer: `5\;m^2`, `9.8\,\mathrm{m}/\mathrm{s}^2`."""
        if self.depth > 3 or not is_constant(left):
            return False
        place = self.place
        while self.tokens[place].kind in ("let", "up", "text"):
            token = self.tokens[place]
            if token.kind != "text" and not is_short_unit(token.text):
                return False
            place += 1
            if self.tokens[place].text == "^":
                place += 1
                if self.tokens[place].text == "{":
                    place += 1
                place += self.tokens[place].text == "-"
                if self.tokens[place].kind != "num":
                    return False
                place += 1 + (self.tokens[min(place + 1, len(self.tokens) - 1)].text == "}")
            if self.tokens[place].text in ("/", "\\cdot"):
                place += 1
        return self.tokens[place].kind == "end" or self.tokens[place].text in (",", ";", ")")


_VARIABLES = ACCENTS | {"\\" + name for name in (*GREEK, *CONSTANTS)}
_HANDLERS: "dict[str, Callable[[Atoms], Tree]]" = {
    "\\sqrt": Atoms._root,
    "\\cbrt": Atoms._root,
    "\\int": Operators.integral,
    "\\iint": Operators.integral,
    "\\oint": Operators.integral,
    "\\sum": Operators.series,
    "\\prod": Operators.series,
    "\\lim": Operators.limit,
    "\\begin": Operators.environment,
    "\\mathbb": Atoms._blackboard,
    "\\mathds": Atoms._blackboard,
    **dict.fromkeys(_BINOMIALS, Atoms._binomial),
    **dict.fromkeys(ACCENTS, Atoms._accent),
}


def _is_proper(part: Tree) -> bool:
    """Whether a fraction of two written integers is below one: what a mixed number may hold."""
    if not (isinstance(part, Node) and len(part.args) == 2):
        return False
    above, below = part.args
    if not (isinstance(above, Num) and isinstance(below, Num)):
        return False
    return 0 < above.value < below.value and above.value.denominator == 1 and below.value.denominator == 1
