r"""Reads whole answers: lists, labels, relations, tuples, intervals, sets, units, conditions.

Example:

    read(r"x = 1 \text{ or } x = 2")      # Node("or", (Rel(("=",), ...), Rel(("=",), ...)))
"""

import itertools

from slime_reward_math.read.applied import is_function
from slime_reward_math.read.expression import Expressions
from slime_reward_math.read.named import named
from slime_reward_math.read.names import BLACKBOARD, CONDITIONS, JOINS, RELATIONS
from slime_reward_math.read.numerals import lettered
from slime_reward_math.read.tokens import Grouping, Unread, tokens
from slime_reward_math.tree import Node, Rel, Sym, Tree, Words
from slime_reward_math.value.units import is_short_unit

MAX_ITEMS = 200
"""Items of a list; published gold answers have fewer than 40."""
_SEPARATING = frozenset({",", ";", "&", "\\land", "\\lor", "\\wedge", "\\vee", "\\\\"})
_SET_SIGNS = frozenset({"\\cup", "\\cap", "\\setminus", "\\backslash", "\\bigcup", "\\bigcap"})
_CLOSERS = frozenset({")", "]", "}", "\\}", "\\rangle", "|", "\\mid", "&", "\\\\", "\\end"})


def read(text: str, grouping: Grouping = Grouping.OUTSIDE) -> Tree:
    """The tree of a clean text.

    Raises:
        Unread: it is too long, too deep, or no mathematics that this reader knows.
    """
    try:
        return lettered(text) or Answers(tokens(text, grouping)).answer()
    except (RecursionError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise Unread("a number or nesting beyond the bounds") from error


class Answers(Expressions):
    """The whole reader."""

    def answer(self) -> Tree:
        """Everything up to the end."""
        if self.at("=", "\\approx"):
            self.take()
        found = self.listing(top=True)
        if self.now.kind != "end":
            raise Unread("something left over")
        return found

    def listing(self, top: bool = False) -> Tree:
        """Clauses with commas, semicolons, `and` and `or` between them."""
        found: list[Tree] = []
        cuts: list[int] = []
        head = "list"
        while True:
            if self.now.text in _SEPARATING or self.now.kind == "text":
                head = self._separators(head, cuts, len(found))
            if self.now.kind == "end" or (not top and self._closes()):
                break
            found.append(self.plain() or self.clause())
            if len(found) > MAX_ITEMS:
                raise Unread("a list with too many items")
            if not self._separated(top):
                break
        if not found:
            raise Unread("nothing to read")
        return _grouped(found, cuts) if cuts else _one(found, head)

    def _closes(self) -> bool:
        text = self.now.text
        if text == "|" and not self.bars and not self.in_set:
            return False
        return text in _CLOSERS or (self.french > 0 and self.at("["))

    def _separated(self, top: bool) -> bool:
        token = self.now
        if token.kind == "text":
            return token.text in JOINS
        return token.text in _SEPARATING and (top or token.text not in ("&", "\\\\"))

    def _separators(self, head: str, cuts: list[int], count: int) -> str:
        """Pass over separators; semicolons are noted among the cuts, words may change the head."""
        while True:
            token = self.now
            if token.text == ";" and token.kind == "sym":
                cuts.append(count)
            elif token.kind == "text" and token.text in JOINS:
                word = token.text.removeprefix(", ").split("/")[0]
                head = word if word in ("and", "or") else head
            elif token.text in ("\\land", "\\wedge"):
                head = "and"
            elif token.text in ("\\lor", "\\vee"):
                head = "or"
            elif not ((token.kind == "sym" and token.text in (",", "&")) or token.text == "\\\\"):
                return head
            self.take()

    def clause(self) -> Tree:
        """A relation with the label before it and the unit, note or condition behind it."""
        if self.now.kind == "text" and self.now.text not in CONDITIONS:
            label = Words(self.take().text)
            known = named(label.text) if self._ends() else named(label.text.removesuffix(" except"))
            if known is not None and self._ends():
                return known
            if known is not None and label.text.endswith(" except"):
                return Node("minus", (known, Node("set", _parts(self.listing()))))
            if self.accept(":", "=", "\\colon"):
                return Node("label", (label, self.clause()))
            if self._ends():
                return label
            if self.now.kind == "text" or label.text.endswith(("not", "never")):
                raise Unread("language that is no answer")
            with self.inside:
                return Node("label", (label, self.clause()))
        if self.now.kind == "text":
            self.take()
            return Node("given", (self._condition(),))
        found = self.relation()
        if self.now.kind in ("text", "up") or (self.now.kind == "let" and self.now.spaced):
            found = self._behind(found)
        if self.at("(") and self.ahead().kind == "text":
            found = self._note(found)
        return found

    def _ends(self) -> bool:
        token = self.now
        return token.kind == "end" or token.text in _CLOSERS or token.text in (",", ";") or token.text in JOINS

    def _note(self, found: Tree) -> Tree:
        end = self.closing("(", ")")
        words = [each.text for each in self.tokens[self.place + 1 : end]]
        self.go(end + 1)
        return Node("unit", (found, Words(" ".join(words))))

    def _behind(self, found: Tree) -> Tree:
        """A unit, a note or a condition behind a value."""
        if self.now.kind == "text" and self.now.text in JOINS:
            return found
        words: list[str] = []
        while not self._ends():
            token = self.now
            if token.kind == "text":
                opening = next((each for each in sorted(CONDITIONS) if f"{token.text} ".startswith(f"{each} ")), "")
                if opening:
                    return self._given(found, words, opening)
                words.append(self.take().text)
            elif token.kind in ("let", "up") and is_short_unit(token.text):
                words.append(self.take().text)
            elif self.accept("^"):
                words.append("^" + self._unit_power())
            elif token.text in ("/", "\\cdot", "*"):
                words.append(self.take().text.replace("\\cdot", "*"))
            elif token.kind == "num" and words:
                return Node("list", (Node("unit", (found, Words(_unit_text(words)))), self.clause()))
            else:
                raise Unread("something behind a value")
        if words and words[0].startswith(("not ", "is not", "is wrong")):
            raise Unread("a value that is denied")
        return Node("unit", (found, Words(_unit_text(words)))) if words else found

    def _unit_power(self) -> str:
        braced = self.accept("{")
        sign = "-" if self.accept("-") else ""
        power = self.take()
        if power.kind != "num" or (braced and not self.accept("}")):
            raise Unread("something behind a unit")
        return sign + power.text

    def _given(self, found: Tree, words: list[str], opening: str) -> Tree:
        rest = self.take().text.removeprefix(opening).strip()
        if words:
            found = Node("unit", (found, Words(_unit_text(words))))
        if self._ends():
            return Node("given", (found, Words(rest or opening)))
        if rest:
            names = self.skip_condition()
            return Node("given", (found, Node("and", (Words(rest), *names)) if names else Words(rest)))
        return Node("given", (found, self._condition()))

    def skip_condition(self) -> list[Tree]:
        """Pass over the rest of the clause: of a condition in words and signs nothing is kept but its letters."""
        names: list[Tree] = []
        while self.now.kind != "end" and self.now.text not in ("\\\\", "\\end"):
            token = self.take()
            names += [Sym(token.text)] if token.kind == "let" else []
        return names

    def _condition(self) -> Tree:
        with self.inside:
            found: list[Tree] = []
            comma = False
            while not (self.now.kind == "end" or self.now.text in _CLOSERS):
                if self.now.kind == "text":
                    found.append(Words(self.take().text))
                elif self.accept(",", ";", "."):
                    comma = True
                else:
                    found.append(self.relation())
                    if comma and not isinstance(found[-1], Rel) and self.now.kind != "text":
                        raise Unread("an answer behind a condition")
            return _one(found, "and") if found else Words("")

    def cell(self) -> Tree:
        """A cell of a matrix or of a case distinction."""
        while self.accept(","):
            pass
        if self.now.text in ("&", "\\\\", "\\end"):
            return Words("")
        found = self.clause()
        while self.accept(",", ";", "."):
            if self.now.kind == "text" or self.now.text not in ("&", "\\\\", "\\end"):
                found = Node("given", (found, self._condition()))
        return found

    def relation(self) -> Tree:
        """A chain of relations between sets, ratios and sums."""
        first = self._side()
        sign = self._relation_sign()
        if not sign:
            return first
        terms, operators = [first], []
        while sign:
            operators.append(sign)
            terms.append(self._side())
            if sign == "in" and isinstance(terms[-1], Sym):
                terms[-1] = Sym(BLACKBOARD.get(terms[-1].name, terms[-1].name))
            sign = self._relation_sign()
        if operators == ["equiv"] and is_function(first) and not isinstance(terms[1], Words | Rel):
            # Everywhere the same: `f(x) \equiv 0`.
            operators = ["="]
        return Rel(tuple(operators), tuple(terms))

    def _relation_sign(self) -> str:
        """The relation at hand, passed over; nothing without one."""
        if self.now.kind not in ("sym", "cmd"):
            return ""
        sign = RELATIONS.get(self.now.text)
        if sign is None and self.accept("\\not"):
            sign = {"=": "!=", "in": "notin"}.get(RELATIONS.get(self.now.text, ""), "not")
        if sign is None:
            return ""
        self.take()
        while self.at("=", ">") and sign in ("=", "<", ">"):
            if self.take().text == "=":
                sign = {"<": "<=", ">": ">="}.get(sign, sign)
        return sign

    def _side(self) -> Tree:
        token = self.now
        if token.kind == "text" and token.text not in JOINS:
            words = self.take().text
            if not self._ends() and self.now.kind in ("num", "let", "cmd") and self.now.text not in RELATIONS:
                return self._sets()
            return Words(words)
        return self._sets()

    def _sets(self) -> Tree:
        left = self.additive()
        if self.now.text in (":", "\\colon") and self.in_set == 0:
            left = self._ratio(left)
        while self.now.text in _SET_SIGNS and self.at(
            "\\cup", "\\cap", "\\setminus", "\\backslash", "\\bigcup", "\\bigcap"
        ):
            sign = self.take().text
            head = {"\\cup": "union", "\\cap": "meet"}.get(sign.replace("big", ""), "minus")
            right = self._ratio(self.additive())
            if head == "union" and isinstance(left, Node) and left.head == "union":
                left = Node("union", (*left.args, right))
            else:
                left = Node(head, (left, right))
        return left

    def _ratio(self, first: Tree) -> Tree:
        parts = [first]
        while self.in_set == 0 and self.at(":", "\\colon"):
            self.take()
            if self.at("="):
                break
            parts.append(self.additive())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def arguments(self) -> tuple[Tree, ...]:
        """What stands in the round brackets at hand, split at commas."""
        self.expect("(")
        with self.fresh:
            return self.items(")")

    def items(self, *closing: str) -> tuple[Tree, ...]:
        """What stands before a closing bracket, split at commas; the bracket is passed over."""
        inner = self.listing()
        self.expect(*closing)
        if isinstance(inner, Node) and inner.head in ("list", "and", "or"):
            return inner.args
        return (inner,)

    def bracket(self) -> Tree:
        """What the bracket at hand encloses: a group, a tuple, an interval, a set."""
        opening = self.take().text
        if opening == "\\{":
            return self._set()
        if opening == "{":
            return self._braces()
        if opening == "\\langle":
            return Node("()", self.items("\\rangle"))
        if self.now.kind == "text" and self.now.text in JOINS:
            raise Unread("a bracket that opens with a joining word")
        if opening == "(" and self.at(")"):
            self.take()
            return Node("()", ())
        if self._is_turned(opening):
            return self._turned(opening)
        inner = self.listing()
        closing = self.now.text
        self.expect(")", "]", "\\}")
        if closing == "\\}":
            raise Unread("a bracket closed by a brace")
        parts = _parts(inner)
        if len(parts) == 1 and opening + closing not in ("()", "[]"):
            raise Unread("a bracket closed by one of another kind")
        if opening == "[" and isinstance(inner, Node) and inner.head in ("/", "root"):
            return Node("whole", (inner,))
        return inner if len(parts) == 1 else Node(opening + closing, parts)

    def _is_turned(self, opening: str) -> bool:
        """Whether the bracket belongs to an interval like `]1, 2]` or `[1, 2[`."""
        if opening == "(":
            return False
        rest = [each.text for each in self.tokens[self.place :] if each.text in ("[", "]")]
        turned = rest[:1] == ["["] and rest.count("]") < rest.count("[") + 1
        return opening == "]" or (turned and not self.half_open())

    def _turned(self, opening: str) -> Tree:
        self.french += 1
        inner = self.listing()
        self.french -= 1
        closing = self.take().text
        if closing not in ("[", "]"):
            raise Unread("an interval that is not closed")
        return Node(("(" if opening == "]" else "[") + (")" if closing == "[" else "]"), _parts(inner))

    def _braces(self) -> Tree:
        if self.at("}"):
            self.take()
            return self.atom()
        inner = self.listing()
        if self.at("\\over", "\\choose", "\\atop"):
            head = "/" if self.take().text == "\\over" else "binom"
            inner = Node(head, (inner, self.listing()))
        if self.at("|", "\\mid"):
            return self._such(inner, "}")
        self.expect("}")
        parts = _parts(inner)
        return Node("set", parts) if len(parts) > 1 and self.depth <= 6 else inner

    def _set(self) -> Tree:
        if self.accept("\\}"):
            return Node("set", ())
        self.in_set += 1
        inner = self.listing()
        if self.at("|", "\\mid", ":", "\\vert", "\\colon"):
            return self._such(inner, "\\}")
        self.expect("\\}", "}")
        return Node("set", _parts(inner))

    def _such(self, element: Tree, closing: str) -> Tree:
        self.take()
        self.in_set = 0
        conditions = self.listing()
        self.expect(closing)
        if isinstance(conditions, Node) and conditions.head == "or":
            return Node("such", (element, conditions))
        return Node("such", (element, *_parts(conditions)))


def _parts(inner: Tree) -> tuple[Tree, ...]:
    if isinstance(inner, Node) and inner.head in ("list", "and", "or"):
        return inner.args
    return (inner,)


def _one(items: list[Tree], head: str) -> Tree:
    return items[0] if len(items) == 1 else Node(head, tuple(items))


def _grouped(found: list[Tree], cuts: list[int]) -> Tree:
    """The items cut at semicolons: a list of lists, if some part has several."""
    places = [0, *cuts, len(found)]
    groups = [found[start:stop] for start, stop in itertools.pairwise(places) if stop > start]
    if len(groups) > 1 and any(len(each) > 1 for each in groups):
        return Node("list", tuple(_one(each, "list") for each in groups))
    return _one(found, "list")


def _unit_text(words: list[str]) -> str:
    return " ".join(words).replace(" ^", "^").replace(" / ", "/")
