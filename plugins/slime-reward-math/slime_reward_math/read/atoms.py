r"""Reads what expressions are made of: symbols, brackets, fractions, roots, values of functions.

Example:

    Atoms(tokens(r"\frac12", ...)).atom()      # 1 / 2
"""

import re
from abc import abstractmethod
from collections.abc import Callable

from slime_reward_math.read.cursor import FRACTIONS, Numerals, Operators
from slime_reward_math.read.names import ACCENTS, BLACKBOARD, CONSTANTS, GREEK, RELATIONS
from slime_reward_math.read.tokens import Token, Unread
from slime_reward_math.tree import Node, Num, Sym, Tree, is_constant, number
from slime_reward_math.value.units import is_short_unit

_KIND = re.compile(r"([CAP])_(\d{0,6})([nmN]?)((?<=[nmN])[+-]\d{1,3})?")


def combination(base: Tree, exponent: Tree) -> Tree | None:
    """`C_{10}^{5}`, `C_{2n}^n` and `A_5^3` as binomial coefficients and falling factorials; None for a plain power."""
    match = _KIND.fullmatch(base.name) if isinstance(base, Sym) else None
    if match is None:
        return None
    kind, factor, name, shift = match.groups()
    if name and kind != "C":
        return None
    if not name and not (factor and isinstance(exponent, Num) and 1 < int(factor) >= exponent.value):
        return None
    above: Tree = Sym(name) if name else number(int(factor))
    if name and factor:
        above = Node("*", (number(int(factor)), above))
    if shift:
        above = Node("+", (above, number(int(shift))))
    return choices(kind, above, exponent)


def choices(kind: str, above: Tree, below: Tree) -> Tree:
    """The number of combinations for `C`, and of arrangements for any other letter."""
    chosen = Node("binom", (above, below))
    return chosen if kind == "C" else Node("*", (chosen, Node("factorial", (below,))))


def applied(name: str, base: Tree | None, arguments: tuple[Tree, ...]) -> Tree:
    """The value of a function, by its name as `FUNCTIONS` has it."""
    if name in ("log", "lg", "lb", "ln"):
        if len(arguments) == 2 and base is None:
            first, base = arguments
            arguments = (first,)
        if base is None:
            known: dict[str, Tree] = {"lg": number(10), "lb": number(2), "ln": Sym("e")}
            base = known.get(name)
        return Node("log", arguments if base is None else (*arguments, base))
    if name == "cis":
        return Node("+", (Node("cos", arguments), Node("*", (Sym("i"), Node("sin", arguments)))))
    if name in ("sqrt", "cbrt"):
        return Node("root", (arguments[0], number(2 if name == "sqrt" else 3)))
    if base is not None:
        return Node(f"call:{name}", (*arguments, base))
    if name in ("det", "dim", "tr", "rank", "arg", "sup", "zeta", "erf", "erfc", "Re", "Im"):
        return Node(f"call:{name}", arguments)
    if name == "deg" or (name not in ("max", "min", "gcd", "lcm") and len(arguments) != 1):
        return Node(f"call:{name}", arguments)
    return Node(name, arguments)


def is_function(tree: Tree) -> bool:
    """Whether a tree names a function: `f(x)`, or one of the letters that do so alone."""
    return (isinstance(tree, Node) and tree.head.startswith("call:")) or tree in (Sym("f"), Sym("g"), Sym("h"))


_ALWAYS_CALLED = frozenset("fghFGH") | {"\\phi", "\\psi", "\\Phi", "\\Psi", "\\Gamma"}
_BINOMIALS = frozenset({"\\binom", "\\dbinom", "\\tbinom"})
_PAIRS = {
    "\\lfloor": ("\\rfloor", "floor"), "\\lceil": ("\\rceil", "ceil"), "\\lvert": ("\\rvert", "abs"),
    "\\lVert": ("\\rVert", "call:norm"), "\\|": ("\\|", "call:norm"), "\\Vert": ("\\Vert", "call:norm"),
}  # fmt: skip


_NUMBER_SETS = {"ZZ+": "NN", "NN+": "NN", "NN*": "NN", "ZZ>0": "NN"}


class Atoms(Numerals):
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
            return self.numeral()
        if token.kind in ("let", "up"):
            return self._letter()
        if token.kind == "sym":
            return self._sign()
        if token.kind == "cmd":
            return self._command()
        raise Unread("words where a value belongs" if token.kind == "text" else "an end where a value belongs")

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
        if token.text == "_" or token.text == "^":
            return self._chosen()
        if token.text == "?":
            raise Unread("a sign that is not a value")
        raise Unread("a sign where a value belongs")

    def _chosen(self) -> Tree:
        r"""`{}_{10}C_3` and `^{10}P_3`, whose empty group was passed over."""
        self.take()
        above = self.argument()
        kind = self.take().text
        if kind not in ("C", "P", "A") or not self.accept("_"):
            raise Unread("a sign that is not a value")
        return choices(kind, above, self.argument())

    def _bars(self, closing: str) -> Tree:
        self.take()
        self.bars += 1
        with self.inside:
            inner = self.additive()
        self.expect(closing, "\\vert", "|")
        self.bars -= 1
        return Node("abs", (inner,))

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
        if token.text in _ALWAYS_CALLED:
            return True
        if token.spaced:
            return False
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
        if text in FRACTIONS:
            return self.fraction()
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
        if name in ("neg", "lnot"):
            return Node("call:not", (self.factor(),))
        if name in ("forall", "exists"):
            return Node(f"call:{name}", (self.relation(),))
        if name == "angle" or name == "triangle":
            return Node(f"call:{name}", (self.term(),))
        if name == "complement":
            around = self.subscript()
            return Node("call:complement", (Sym(around.lstrip("_") or "U"), self.term()))
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
        inner = self.argument()
        if head == "vec" and isinstance(inner, Node) and inner.head == "*" and len(inner.args) == 2:
            names = [each.name if isinstance(each, Sym) else "" for each in inner.args]
            if all(names):
                # From A to B is not from B to A, and no product.
                inner = Sym("".join(names))
        return Node(f"call:{head}", (inner,))

    def _blackboard(self) -> Tree:
        self.take()
        inner = self.argument()
        if not isinstance(inner, Sym):
            raise Unread("a set of numbers without a name")
        name = BLACKBOARD.get(inner.name, inner.name)
        if self.at("_") and self.ahead().text == "{" and self._is_half_line():
            name += {">": "+", "<": "-", "!=": "*"}.get(sign := RELATIONS[self.ahead(2).text], sign + "0")
            self.skip(5)
            return Sym(_NUMBER_SETS.get(name, name))
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
            name = _NUMBER_SETS.get(name, name)
        return Sym(name)

    def _is_half_line(self) -> bool:
        r"""Whether the subscript at hand selects a half-line, as in `\mathbb{R}_{\ge 0}`."""
        return self.ahead(2).text in RELATIONS and self.ahead(3).text == "0" and self.ahead(4).text == "}"

    def argument(self) -> Tree:
        """A command's argument: a braced group, one digit, one letter, or one command."""
        token = self.now
        if token.kind == "num" and len(token.text) > 1 and "." not in token.text:
            self.tokens[self.place] = self.now = Token("num", token.text[1:])
            return number(int(token.text[0]))
        if token.kind == "num":
            return self.plain_number()
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
                found = self.grouped()
                if found is not None:
                    return found
        if self.is_function():
            return self.factor()
        with self.inside:
            return self.atom()

    def fraction(self) -> Tree:
        self.take()
        if self.ahead().text in ("d", "\\partial"):
            operator = self._operator()
            if operator:
                return Node("call:derivative", (self.term(), Sym(operator)))
            operator = self._derivative()
            if operator:
                above = self.argument()
                self.go(self.closing("{", "}") + 1)
                # `dy/dx` names the slope of a curve; what has a rule has a derivative that can be computed.
                head = "call:slope" if isinstance(above, Sym) else "call:derivative"
                return Node(head, (above, Sym(operator)))
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
        # `\sqrt13` is set as the root of 1 before a 3, and meant as the root of 13.
        return Node("root", (self.plain_number() if self.now.kind == "num" else self.argument(), degree))

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
    "\\sqrt": Atoms._root, "\\cbrt": Atoms._root, "\\int": Operators.integral, "\\iint": Operators.integral,
    "\\oint": Operators.integral, "\\sum": Operators.series, "\\prod": Operators.series, "\\lim": Operators.limit,
    "\\begin": Operators.environment, "\\mathbb": Atoms._blackboard, "\\mathds": Atoms._blackboard,
    **dict.fromkeys(_BINOMIALS, Atoms._binomial), **dict.fromkeys(ACCENTS, Atoms._accent),
}  # fmt: skip
