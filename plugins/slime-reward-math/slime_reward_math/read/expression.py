r"""Reads expressions: sums, products with or without a sign, powers, functions, roots, fractions.

Example:

    Expressions(tokens(r"2\sin x", ...)).additive()      # 2 * sin(x)
"""

from abc import abstractmethod

from slime_reward_math.read.applied import applied
from slime_reward_math.read.atoms import Atoms
from slime_reward_math.read.combinations import combination
from slime_reward_math.read.names import ALIASES, CONDITIONS, FUNCTIONS, INVERSES, JOINS, ORDINALS
from slime_reward_math.read.tokens import Unread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, children, number, walk

_FUNCTIONS = frozenset("\\" + name for name in FUNCTIONS if name not in ("sqrt", "cbrt"))
_TIMES = ("*", "\\cdot", "\\times", "\\ast", "\\bullet", "\\star")
_DIVIDE = ("/", "\\div")
_OPERATORS = frozenset((*_TIMES, *_DIVIDE, "\\bmod", "\\mod", "\\pmod"))
_SIGNS = frozenset({"+", "-", "\\pm", "\\mp"})
_BEHIND = frozenset({"^", "_", "**", "!", "%", "\\%", "\\degree", "\\textdegree", "'", "\\prime", '"'})
_STOPS = frozenset(
    {")", "]", "}", "\\}", "|", "\\mid", "\\rfloor", "\\rceil", "\\rangle", "\\vert", "\\rvert", "\\Vert", "&", "\\\\"}
    | {"\\|", "\\rVert", ",", ";", "=", "<", ">", "+", "-", ":", "/", "\\end", "'", "!", "^", "_", "?", "."}
)
_STARTS = frozenset(
    {"(", "{", "[", "\\{", "\\langle", "\\lfloor", "\\lceil", "\\lvert", "\\lVert", "\\sqrt", "\\cbrt", "\\frac"}
    | {"\\dfrac", "\\tfrac", "\\cfrac", "\\binom", "\\dbinom", "\\tbinom", "\\int", "\\iint", "\\oint", "\\sum"}
    | {
        "\\prod",
        "\\lim",
        "\\begin",
        "\\mathbb",
        "\\mathds",
        "\\infty",
        "\\pi",
        "\\emptyset",
        "\\varnothing",
        "\\lgroup",
    }
    | {
        "\\imath",
        "\\jmath",
        "\\pmod",
        "\\complement",
        "\\forall",
        "\\exists",
        "\\ldots",
        "\\cdots",
        "\\dots",
        "\\undefined",
        "\\DNE",
    }
)


_ASIDES = JOINS | CONDITIONS
"""Words that do not open a note in brackets."""


class Expressions(Atoms):
    """The part of the reader below relations."""

    def additive(self) -> Tree:
        """A sum of signed terms."""
        terms = [self._signed() if self.now.text in _SIGNS else self.term()]
        while self.now.text in _SIGNS and self.at("+", "-", "\\pm", "\\mp"):
            if self._hangs():
                break
            terms.append(self._signed())
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _hangs(self) -> bool:
        """Whether the sign at hand ends its group, as in `3^{+}`."""
        following = self.ahead()
        return following.kind == "end" or following.text in (")", "}", "]")

    def _signed(self) -> Tree:
        sign = ""
        flips = 0
        while self.at("+", "-", "\\pm", "\\mp"):
            text = self.take().text
            if text == "-":
                flips += 1
            elif text != "+":
                sign = text
        term = self.term()
        if sign:
            term = Node("pm" if sign == "\\pm" else "mp", (term,))
        return _negative(term) if flips % 2 else term

    def term(self) -> Tree:
        """A product; division binds to the left, a product without a sign like one with."""
        left = self.signed_factor() if self.now.text in _SIGNS else self.factor()
        while True:
            token = self.now
            if token.kind == "end":
                return left
            if token.text in _OPERATORS and token.kind != "text":
                left = self._operation(left, self.take().text)
            elif self.starts_factor(left):
                left = _times(left, self.factor())
            else:
                return left

    def _operation(self, left: Tree, sign: str) -> Tree:
        """What an operator that was passed over makes of the left side and what follows."""
        if sign in _TIMES:
            return _times(left, self.signed_factor())
        if sign in _DIVIDE:
            return Node("/", (left, self.signed_factor()))
        return Node("residue" if sign == "\\pmod" else "mod", (left, self.factor()))

    def signed_factor(self) -> Tree:
        r"""A factor after a sign of its own: `2 \cdot -3`."""
        if self.accept("-"):
            with self.inside:
                return _negative(self.signed_factor())
        if self.accept("+"):
            with self.inside:
                return self.signed_factor()
        if self.at("\\pm", "\\mp"):
            sign = self.take().text
            with self.inside:
                return Node("pm" if sign == "\\pm" else "mp", (self.signed_factor(),))
        return self.factor()

    def starts_factor(self, left: Tree) -> bool:
        """Whether what follows multiplies what was read."""
        token = self.now
        if token.text == "(" and self.ahead().kind == "text" and self.ahead().text not in _ASIDES:
            return False
        if token.kind == "let":
            return not (token.spaced and self.unit_ends(left))
        if token.kind == "up":
            return not self.unit_ends(left)
        if token.kind == "num":
            return not isinstance(left, Num) and not self._ends_in_number()
        if token.kind in ("end", "text") or token.text in _STOPS:
            return token.text in ("|", "\\vert") and token.kind != "text" and self.bars == 0 and self.in_set == 0
        if token.text == "[":
            return self.in_set == 0 and self.french == 0 and not token.spaced
        return token.text in _STARTS or self.is_function() or self.is_variable()

    def _ends_in_number(self) -> bool:
        last = self.tokens[self.place - 1]
        return last.kind == "num" and self.tokens[self.place - 2].text not in ("^", "_")

    def factor(self) -> Tree:
        """A function's value, or an atom with what stands behind it."""
        if self.is_function():
            with self.inside:
                return self._function()
        return self.powered(self.atom())

    def powered(self, base: Tree) -> Tree:
        """An atom with its exponents, factorials, percent and degree signs."""
        while True:
            token = self.now
            if token.kind not in ("sym", "cmd") or token.text not in _BEHIND:
                return base
            if token.text in ("^", "**") and token.kind == "sym":
                base = self._power(base)
            elif token.text == "!" and token.kind == "sym":
                base = self._factorials(base)
            elif token.text in ("%", "\\%"):
                self.take()
                base = Node("percent", (base,))
            elif token.text in ("\\degree", "\\textdegree"):
                self.take()
                base = Node("deg", (base,))
            elif token.text == "_" and isinstance(base, Num) and not base.places:
                base = self.based(base)
            elif token.text in ("'", "\\prime", '"'):
                base = self._primed(base)
            elif token.text == "_" and isinstance(base, Node) and base.head.startswith("call:"):
                # The largest value of f(x), and no other function's: `f(x)_{\max}`.
                base = Node(base.head + self.subscript(), base.args)
            else:
                return base

    def _factorials(self, base: Tree) -> Tree:
        """`n!!` is the double factorial, three marks and more are nested single ones."""
        count = 0
        while self.accept("!"):
            count += 1
        if count == 2:
            return Node("factorial2", (base,))
        for _ in range(min(count, 9)):
            base = Node("factorial", (base,))
        return base

    def _primed(self, base: Tree) -> Tree:
        count = 0
        while self.at("'", "\\prime", '"'):
            count += 1 + (self.take().text == '"')
        if isinstance(base, Num):
            return Node("deg", (Node("/", (base, number(60**count))),)) if count < 3 else base
        if isinstance(base, Sym):
            name = base.name + self.subscript() + "'" * count
            return self.application(name) if self.at("(") and len(base.name) == 1 else Sym(name)
        return Node("call:prime", (base, number(count)))

    def _power(self, base: Tree) -> Tree:
        self.take()
        if self.now.kind == "num":
            with self.inside:
                return self._raised(base)
        if self.accept("\\circ", "\\degree"):
            return self._degrees(base)
        if self.at("{") and self.ahead().text in ("\\circ", "\\degree") and self.ahead(2).text == "}":
            self.skip(3)
            return self._degrees(base)
        if self.at("{") and self.ahead().text in ("+", "-", "*") and self.ahead(2).text == "}":
            self.skip(3)
            return Node("^", (base, Sym(self.ahead(-2).text)))
        if self.at("{") and self.ahead(2).text in ("+", "-") and self.ahead(3).text == "}":
            # The charge of an ion: `2+`.
            self.skip(4)
            return Node("^", (base, Sym(f"{self.ahead(-3).text}{self.ahead(-2).text}")))
        if self.at("+", "-", "*") and self.ahead().text in ("}", ")", ""):
            return Node("^", (base, Sym(self.take().text)))
        if self.at("\\prime"):
            return self._primed(base)
        if self.at("{") and self.ahead().text == "\\prime":
            self.skip(1)
            primed = self._primed(base)
            self.expect("}")
            return primed
        if self._ordinal():
            return base
        if self.now.text in ("c", "C") and self.at("\\complement"):
            self.take()
            return Node("call:complement", (base,))
        with self.inside:
            return self._raised(base)

    def _raised(self, base: Tree) -> Tree:
        """A base with the exponent at hand."""
        exponent = self._exponent()
        return combination(base, exponent) or Node("^", (base, exponent))

    def _degrees(self, base: Tree) -> Tree:
        r"""An angle, or a temperature if `C` or `F` ends the answer."""
        following = self.ahead()
        if self.now.text in ("C", "F", "c", "f", "celsius", "fahrenheit") and (
            following.kind == "end" or following.text == ","
        ):
            return Node("unit", (base, Words(f"degrees {self.take().text[0].lower()}")))
        return Node("deg", (base,))

    def _ordinal(self) -> bool:
        r"""Pass over the ending in `12^{\text{th}}`."""
        if self.now.kind == "text" and self.now.text in ORDINALS:
            self.take()
            return True
        braced = self.at("{") and self.ahead(2).text == "}" and self.ahead().text in ORDINALS
        letters = self.at("{") and self.ahead().kind == "let" and self.ahead(3).text == "}"
        if letters and self.ahead().text + self.ahead(2).text in ORDINALS:
            self.skip(4)
            return True
        if braced:
            self.skip(3)
        return braced

    def _exponent(self) -> Tree:
        """What stands after `^`; towers associate to the right."""
        if self.accept("-"):
            return _negative(self._exponent())
        if self.accept("+"):
            return Sym("+") if self.at("}", ")") else self._exponent()
        if self.is_function():
            return self._function()
        exponent = self.atom()
        while self.at("!"):
            self.take()
            exponent = Node("factorial", (exponent,))
        if self.accept("^", "**"):
            with self.inside:
                return Node("^", (exponent, self._exponent()))
        return exponent

    def is_function(self) -> bool:
        """Whether a function's name is at hand."""
        token = self.now
        return token.kind == "cmd" and token.text in _FUNCTIONS

    def _function(self) -> Tree:
        name = self.take().text[1:]
        name = ALIASES.get(name, name)
        base: Tree | None = None
        power: Tree | None = None
        while self.at("_", "^"):
            if self.take().text == "_":
                base = self._base()
            else:
                with self.inside:
                    power = self._exponent()
        if power == number(-1) or power == Node("neg", (number(1),)):
            name, power = INVERSES.get(name, name), None if name in INVERSES else power
        if base is None and power is None and self._ends_clause():
            return Sym(name)
        argument = self._argument()
        value = applied(name, base, argument)
        if power is not None:
            value = Node("^", (value, power))
        return self.powered(value) if self.at("!", "^") else value

    def _base(self) -> Tree:
        r"""The base of a logarithm: `\log_35` is base 3 of 5, because a number alone leaves nothing to take it of."""
        following = self.ahead()
        alone = following.kind == "end" or following.text in _STOPS or following.text in _SIGNS
        if self.now.kind == "num":
            return self.argument() if alone else self.plain_number()
        return self.atom()

    def _ends_clause(self) -> bool:
        r"""Whether a function's name stands alone: `\max = 5`."""
        token = self.now
        return token.kind in ("end", "text") or token.text in ("=", ",", ";", ":", "<", ">", "\\le", "\\ge", ")")

    def _argument(self) -> tuple[Tree, ...]:
        r"""A bracketed argument, or the product that follows: `\sin 2x` but not `\sin x + 1`."""
        if self.at("("):
            return self.arguments()
        if self.at("\\{"):
            group = self.atom()
            return group.args if isinstance(group, Node) and group.head == "set" else (group,)
        if self.at("{"):
            return (self.powered(self.atom()) if self.ahead(1).text != "}" else self.atom(),)
        if self.is_function():
            with self.inside:
                return (self._function(),)
        if self.at("-"):
            self.take()
            return tuple(_negative(each) for each in self._argument())
        left = self.powered(self.atom())
        while self._continues(left):
            left = _times(left, self.powered(self.atom()))
        if self.at("/") and self.ahead().kind == "num" and Sym("pi") in walk(left):
            self.take()
            left = Node("/", (left, self.powered(self.atom())))
        return (left,)

    def _continues(self, left: Tree) -> bool:
        token = self.now
        if token.kind in ("let", "num"):
            return self.starts_factor(left)
        if token.kind != "cmd":
            return False
        return self.is_variable() or token.text in ("\\pi", "\\frac", "\\dfrac", "\\tfrac", "\\sqrt")

    @abstractmethod
    def arguments(self) -> tuple[Tree, ...]:
        """What stands in the round brackets at hand, split at commas."""


def _times(left: Tree, right: Tree) -> Tree:
    if isinstance(right, Rel) or (isinstance(right, Node) and right.head == "given"):
        if isinstance(right, Rel) and left in (right.terms[-1], *children(right.terms[-1])[:1]):
            raise Unread("an equation that says the value before it")
        return Node("given", (left, right))
    if isinstance(right, Words):
        return Node("unit", (left, right))
    if isinstance(left, Node) and isinstance(right, Node) and left.head == right.head == "deg":
        return Node("+", (left, right))
    if isinstance(left, Node) and left.head == "set" and len(left.args) == 1:
        left = left.args[0]
    if isinstance(left, Node) and left.head == "*":
        return Node("*", (*left.args, right))
    return Node("*", (left, right))


def _negative(tree: Tree) -> Tree:
    if isinstance(tree, Num):
        return Num(-tree.value, tree.places, tree.digits)
    if isinstance(tree, Node) and tree.head == "neg":
        return tree.args[0]
    if isinstance(tree, Node) and tree.head in ("unit", "given", "residue") and len(tree.args) > 1:
        return Node(tree.head, (_negative(tree.args[0]), *tree.args[1:]))
    if isinstance(tree, Words):
        raise Unread("a sign before words")
    return Node("neg", (tree,))
