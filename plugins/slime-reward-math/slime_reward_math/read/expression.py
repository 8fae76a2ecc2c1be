r"""Reads sums, products with or without a sign, powers, functions, and the words and signs behind a value.

Example:

    Expressions(tokens(r"2\sin x", ...)).additive()      # 2 * sin(x)
    Answers(tokens(r"5 \text{ cm if } x > 0", ...)).clause()      # Node("given", (Node("unit", ...), ...))
"""

import re
from abc import abstractmethod

from slime_reward_math.read.atoms import Atoms, applied, combination
from slime_reward_math.read.loaded import turns
from slime_reward_math.read.names import ALIASES, CONDITIONS, FUNCTIONS, INVERSES, JOINS, ORDINALS
from slime_reward_math.read.spoken import INFIX, behind, operation, said, spoken
from slime_reward_math.read.tokens import Unread
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, children, number, walk
from slime_reward_math.value.units import is_short_unit

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
_STARTS = frozenset({
    "(", "{", "[", "\\{", "\\langle", "\\lfloor", "\\lceil", "\\lvert", "\\lVert", "\\sqrt", "\\cbrt", "\\frac",
    "\\dfrac", "\\tfrac", "\\cfrac", "\\binom", "\\dbinom", "\\tbinom", "\\int", "\\iint", "\\oint", "\\sum",
    "\\prod", "\\lim", "\\begin", "\\mathbb", "\\mathds", "\\infty", "\\pi", "\\emptyset", "\\varnothing",
    "\\lgroup", "\\imath", "\\jmath", "\\pmod", "\\complement", "\\forall", "\\exists", "\\ldots", "\\cdots",
    "\\dots", "\\undefined", "\\DNE",
})  # fmt: skip


_ASIDES = JOINS | CONDITIONS


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
        """The result of a consumed operator on the left side and the following factor."""
        if sign in _TIMES:
            return _times(left, self.signed_factor())
        if sign in _DIVIDE:
            return Node("/", (left, self.signed_factor()))
        return Node("residue" if sign == "\\pmod" else "mod", (left, self.factor()))

    def signed_factor(self) -> Tree:
        r"""A factor with its sign: `-3` of `2 \cdot -3`."""
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


CLOSERS = frozenset({")", "]", "}", "\\}", "\\rangle", "|", "\\mid", "&", "\\\\", "\\end"})
"""Tokens that end a clause, in addition to commas and joining words."""
MAX_OPERATIONS = 20
"""Maximum operations in words between two values, per answer."""
_WAYS = frozenset({"by", "from", "at", "using", "via", "see"})
_OPENS_AGAIN = re.compile(r"^(?:if|when|for|whenever)\b|\b(?:and|or)$")
"""A second condition behind an answer: what stands before it may be a second answer."""


class Notes(Expressions):
    """The part of the reader for what stands behind a value."""

    operations = 0
    """Operations in words so far."""

    @abstractmethod
    def clause(self) -> Tree:
        """A relation with the label before it and the unit, note or condition behind it."""

    @abstractmethod
    def relation(self) -> Tree:
        """A chain of relations."""

    def ends(self) -> bool:
        """Whether the clause is over."""
        token = self.now
        joins = token.kind == "text" and token.text in JOINS
        return joins or token.kind == "end" or token.text in CLOSERS or token.text in (",", ";")

    def note(self, found: Tree) -> Tree:
        """A value with the words in brackets behind it."""
        end = self.closing("(", ")")
        words = " ".join(each.text for each in self.tokens[self.place + 1 : end])
        self.go(end + 1)
        again = spoken(words.removeprefix("or ").removeprefix("that is "))
        if isinstance(again, Num):
            # The value is repeated in words: both must be the answer.
            return Node("list", (found, again))
        if words.split(" ")[0] in CONDITIONS:
            return said(words, found) if turns(words) else Node("unit", (found, Words(words)))
        noted = behind(found, words)
        if isinstance(noted, Node) and noted.head == "noted" and words.split(" ")[0] in _WAYS:
            # How it was found: `(by symmetry)`.
            return Node("unit", (found, Words(words)))
        return noted

    def aside(self, found: Tree) -> Tree:
        """A value with the brackets behind it: words, or `(= 10/2)`, which must be equal."""
        if self.ahead().kind == "text":
            return self.note(found)
        if self.ahead().text in ("=", "\\approx"):
            sign = "=" if self.ahead().text == "=" else "~"
            self.skip(2)
            found = Rel((sign,), (found, self.additive()))
            self.expect(")")
        return found

    def things(self, found: Tree) -> Tree:
        """`7 men and women`: one thing that is counted."""
        if not (isinstance(found, Node) and found.head == "unit" and isinstance(found.args[1], Words)):
            return found
        whole = behind(found.args[0], f"{found.args[1].text} and {self.ahead().text}")
        self.skip(2)
        return whole

    def behind(self, found: Tree) -> Tree:
        """A unit, a note or a condition behind a value."""
        if self.now.kind == "text" and self.now.text in JOINS:
            return found
        words: list[str] = []
        while not self.ends():
            token = self.now
            if token.kind == "text":
                opening = next((each for each in sorted(CONDITIONS) if f"{token.text} ".startswith(f"{each} ")), "")
                if opening:
                    return self._given(found, words, opening)
                words.append(self.take().text)
            elif token.kind in ("let", "up") and is_short_unit(token.text):
                words.append(self.take().text)
            elif words and self.at("(") and self.ahead().kind == "text":
                break
            elif self.accept("^"):
                words.append("^" + self._unit_power())
            elif token.text in ("/", "\\cdot", "*"):
                words.append(self.take().text.replace("\\cdot", "*"))
            elif words and (infix := _infix(words, found)) is not None:
                sign, rest = infix
                found, words = self._combined(behind(found, rest) if rest else found, sign), []
            elif token.kind == "let" and words and words[-1].endswith((" of", " for")):
                words.append(self.take().text)
            elif token.kind == "num" and words:
                return Node("list", (behind(found, _unit_text(words)), self.clause()))
            else:
                raise Unread("something behind a value")
        return behind(found, _unit_text(words)) if words else found

    def _combined(self, left: Tree, infix: str) -> Tree:
        """`5 plus 2` and its like, from the left; refuses combinations that would need brackets."""
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise Unread("too many operations in words")
        right = self.additive()
        tight = infix not in ("+", "-")
        if isinstance(left, Rel) or (
            tight and any(isinstance(each, Node) and each.head in ("+", "neg") for each in (left, right))
        ):
            raise Unread("an operation in words that could mean two")
        return operation(infix, left, right)

    def _unit_power(self) -> str:
        braced = self.accept("{")
        sign = "-" if self.accept("-") else ""
        power = self.take()
        if power.kind != "num" or (braced and not self.accept("}")):
            raise Unread("something behind a unit")
        return sign + power.text

    def _given(self, found: Tree, words: list[str], opening: str) -> Tree:
        """A value with the condition behind it; a condition that also gives another case changes the value."""
        start = self.place
        found = self._conditioned(behind(found, _unit_text(words)) if words else found, opening)
        told = [each.text for each in self.tokens[start : self.place] if each.kind == "text"]
        again = any(_OPENS_AGAIN.search(each) for each in told[1:])
        if not (again or turns(" ".join(told))):
            return found
        return said(" ".join(each.text for each in self.tokens[start : self.place]), found)

    def _conditioned(self, found: Tree, opening: str) -> Tree:
        rest = self.take().text.removeprefix(opening).strip()
        if self.ends():
            return Node("given", (found, Words(rest or opening)))
        if rest:
            names = self.skip_condition()
            return Node("given", (found, Node("and", (Words(rest), *names)) if names else Words(rest)))
        return Node("given", (found, self.condition()))

    def skip_condition(self) -> list[Tree]:
        """Consume the rest of the clause, a condition in words and signs; returns only its letters."""
        names: list[Tree] = []
        while self.now.kind != "end" and self.now.text not in ("\\\\", "\\end"):
            token = self.take()
            names += [Sym(token.text)] if token.kind == "let" else []
        return names

    def condition(self) -> Tree:
        """What stands behind `if` and its like."""
        with self.inside:
            found: list[Tree] = []
            comma = False
            while not (self.now.kind == "end" or self.now.text in CLOSERS):
                if self.now.kind == "text":
                    found.append(Words(self.take().text))
                elif self.accept(",", ";", "."):
                    comma = True
                else:
                    found.append(self.relation())
                    if comma and not isinstance(found[-1], Rel) and self.now.kind != "text":
                        raise Unread("an answer behind a condition")
            if not found:
                return Words("")
            return found[0] if len(found) == 1 else Node("and", tuple(found))


def _infix(words: list[str], left: Tree) -> tuple[str, str] | None:
    """The operation that words between two values end with, and the words before it; `of` is one behind a percent."""
    text = " ".join(words)
    if text == "of" and isinstance(left, Node) and left.head == "percent":
        return "*", ""
    parts = text.split()
    for place in range(len(parts)):
        if (sign := INFIX.get(" ".join(parts[place:]))) is not None:
            return sign, " ".join(parts[:place])
    return None


def _unit_text(words: list[str]) -> str:
    return " ".join(words).replace(" ^", "^").replace(" / ", "/")
