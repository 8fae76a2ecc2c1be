r"""Reads whole answers: lists, labels, relations, tuples, intervals, sets, and values by cases in prose.

Example:

    read(r"x = 1 \text{ or } x = 2")      # Node("or", (Rel(("=",), ...), Rel(("=",), ...)))
    clauses(tokens("2x if n is even else 0", ...))      # [([2, x], [n, is even]), ([0], None)]
"""

import itertools
import re
from dataclasses import replace

from slime_reward_math.read.atoms import is_function
from slime_reward_math.read.cursor import lettered
from slime_reward_math.read.expression import CLOSERS, Notes
from slime_reward_math.read.loaded import changes_ahead
from slime_reward_math.read.names import BLACKBOARD, CONDITIONS, JOINS, RELATIONS, SAID_RELATIONS, WORDS
from slime_reward_math.read.spoken import NO_VALUE_NAMES, ahead, compared, said, spoken
from slime_reward_math.read.tokens import Grouping, Token, Unread, tokens
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number

Clause = tuple[list[Token], list[Token] | None]
"""The tokens of a value and of its condition; the condition is None for the `otherwise` case."""

_OPENING = re.compile(r"(if|when|for|whenever|where|provided)\b ?(.*)")
_ELSE = re.compile(r"(?:and )?(?:or )?(?:else|otherwise)\b ?(.*)")
_INNER = re.compile(r" (?=(?:if|when|for|whenever|else|otherwise)\b)")
_NESTING = {"(": 1, "[": 1, "{": 1, "\\{": 1, ")": -1, "]": -1, "}": -1, "\\}": -1}


def clauses(found: list[Token]) -> list[Clause] | None:
    """The values and conditions in tokens (without the end token); None for fewer than two cases."""
    if not any(each.kind == "text" and _tells(each.text) for each in found) or any(
        each.text == "\\begin" for each in found
    ):
        return None
    cases: list[Clause] = []
    pending: list[Token] | None = None
    for segment in _segments(_split(found)):
        value, condition, otherwise = _parted(segment)
        if value and (condition is not None or otherwise):
            if pending is not None:
                return None
            cases.append((value, None if otherwise else condition))
        elif condition is not None or otherwise:
            if pending is None:
                return None
            cases.append((pending, None if otherwise else condition))
            pending = None
        elif cases and cases[-1][1] is not None and _is_relation(value):
            cases[-1][1].extend((Token("sym", ","), *value))
        elif pending is None:
            pending = value
        else:
            return None
    return cases if pending is None and len(cases) > 1 and all(condition != [] for _, condition in cases) else None


def _tells(text: str) -> bool:
    return _OPENING.match(text) is not None or _ELSE.match(text) is not None or _INNER.search(text) is not None


def _split(found: list[Token]) -> list[Token]:
    split: list[Token] = []
    for each in found:
        if each.kind == "text" and _INNER.search(each.text):
            split += [Token("text", part) for part in _INNER.split(each.text)]
        else:
            split.append(each)
    return split


def _segments(found: list[Token]) -> list[list[Token]]:
    segments: list[list[Token]] = [[]]
    depth = 0
    for each in found:
        depth += _NESTING.get(each.text, 0) if each.kind in ("sym", "cmd") else 0
        joins = each.text in (",", ";") if each.kind == "sym" else each.kind == "text" and each.text in JOINS
        if depth == 0 and joins:
            segments.append([])
        elif depth == 0 and each.kind == "text" and (opening := _ELSE.match(each.text)):
            # `0 otherwise` ends a segment, `else 0` begins one.
            if segments[-1] and _has_condition(segments[-1]):
                segments.append([])
            segments[-1].append(Token("text", "otherwise"))
            segments[-1] += [Token("text", opening[1])] if opening[1] else []
        else:
            segments[-1].append(each)
    return [each for each in segments if each]


def _has_condition(segment: list[Token]) -> bool:
    return any(each.kind == "text" and _OPENING.match(each.text) for each in segment)


def _parted(segment: list[Token]) -> tuple[list[Token], list[Token] | None, bool]:
    if any(each.kind == "text" and each.text == "otherwise" for each in segment):
        return [each for each in segment if each.text != "otherwise"], None, True
    for place, each in enumerate(segment):
        opening = _OPENING.match(each.text) if each.kind == "text" else None
        if opening is not None:
            rest = [replace(each, text=opening[2])] if opening[2] else []
            return segment[:place], rest + segment[place + 1 :], False
    return segment, None, False


def _is_relation(value: list[Token]) -> bool:
    return any(each.text in RELATIONS for each in value)


_NAMED: dict[str, Tree] = {
    **dict.fromkeys(("all real numbers", "all reals", "real numbers", "all real values", "any real number"), Sym("RR")),
    **dict.fromkeys(("all integers", "integers", "any integer", "all integer values"), Sym("ZZ")),
    **dict.fromkeys(
        ("all positive integers", "positive integers", "all natural numbers", "natural numbers"), Sym("NN")
    ),
    **dict.fromkeys(("all positive real numbers", "all positive reals", "positive real numbers"), Sym("RR+")),
    **dict.fromkeys(("all nonnegative real numbers", "all non negative real numbers"), Sym("RR>=0")),
    **dict.fromkeys(("all rational numbers", "rational numbers"), Sym("QQ")),
    **dict.fromkeys(("all complex numbers", "complex numbers"), Sym("CC")),
    **dict.fromkeys(
        ("empty set", "the empty set", "no solution", "no solutions", "no real solutions"), Node("set", ())
    ),
    **dict.fromkeys(("does not exist", "dne", "undefined"), Sym("undefined")),
    **dict.fromkeys(("infinity", "positive infinity"), Sym("inf")),
    **{word: number(value) for word, value in WORDS.items()},
}


def named(words: str) -> Tree | None:
    """The value that lower-case words name; None if they name nothing."""
    return _NAMED.get(words) or spoken(words)


MAX_ITEMS = 200
"""Maximum items of a list; published gold answers have fewer than 40."""
_SEPARATING = frozenset({",", ";", "&", "\\land", "\\lor", "\\wedge", "\\vee", "\\\\"})
_SET_SIGNS = frozenset({"\\cup", "\\cap", "\\setminus", "\\backslash", "\\bigcup", "\\bigcap"})

_LIES_IN = frozenset({"is in", "lies in", "belongs to", "is in the interval", "lies in the interval", "is in the set"})


def read(text: str, grouping: Grouping = Grouping.OUTSIDE) -> Tree:
    """The tree of a clean text.

    Raises:
        Unread: it is too long, too deep, or no mathematics that this reader knows.
    """
    try:
        return lettered(text) or Answers(tokens(text, grouping)).answer()
    except (RecursionError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise Unread("a number or nesting beyond the bounds") from error


class Answers(Notes):
    """The whole reader."""

    def answer(self) -> Tree:
        """Everything up to the end."""
        if self.at("=", "\\approx"):
            self.take()
        found = self._cases() or self.listing(top=True)
        if self.now.kind != "end":
            raise Unread("something left over")
        return found

    def _cases(self) -> Tree | None:
        """Several values, each with its condition, as a case distinction; None for anything else."""
        kinds = [each.kind for each in self.tokens]
        found = clauses(self.tokens[self.place : self.last]) if "text" in kinds else None
        if found is None:
            return None
        rows: list[Tree] = []
        name: Tree | None = None
        for value, condition in found:
            case = Answers([*value, self.tokens[self.last]]).clause()
            if isinstance(case, Rel) and case.ops == ("=",) and not rows:
                name, case = case.terms
            when = Answers([*condition, self.tokens[self.last]]).condition() if condition else Words("")
            rows.append(Node("row", (case, Node("given", (when,)))))
        self.go(self.last)
        whole = Node("cases", tuple(rows))
        return whole if name is None else Rel(("=",), (name, whole))

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
            if self.now.kind == "text":
                found[-1] = self._or_more(found[-1])
            if len(found) > MAX_ITEMS:
                raise Unread("a list with too many items")
            if not self._separated(top):
                break
        if not found:
            raise Unread("nothing to read")
        return _grouped(found, cuts) if cuts else _one(found, head)

    def _or_more(self, found: Tree) -> Tree:
        """`5 or more` as the set that it is."""
        if self.now.text not in ("or", "and", ", or", ", and") or self.ahead().kind != "text":
            return found
        set_of = compared(found, self.ahead().text)
        if set_of is not None and (self.ahead(2).kind == "end" or self.ahead(2).text in CLOSERS):
            self.skip(2)
            return set_of
        if self.now.text == "and" and (self.ahead(2).kind == "end" or self.ahead(2).text in CLOSERS):
            return self.things(found)
        return found

    def _closes(self) -> bool:
        text = self.now.text
        if text == "|" and not self.bars and not self.in_set:
            return False
        return text in CLOSERS or (self.french > 0 and self.at("["))

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
        """A relation, with the label before it and the unit, note or condition after it."""
        if self.now.kind == "text" and self.now.text not in CONDITIONS:
            label = Words(self.take().text)
            known = named(label.text) if self.ends() else named(label.text.removesuffix(" except"))
            if known is not None and self.ends():
                return known
            if known is not None and label.text.endswith(" except"):
                return Node("minus", (known, Node("set", _parts(self.listing()))))
            if self.accept(":", "=", "\\colon"):
                return _named(label, self.clause())
            if self.ends():
                return label
            if self.now.kind == "text" or label.text.endswith(("not", "never")):
                raise Unread("language that is not an answer")
            with self.inside:
                start = self.place
                value = self.clause()
                if isinstance(counted := spoken(label.text), Num) and self._in_brackets(start):
                    # `five (5)`: both must be the answer.
                    return Node("list", (counted, value))
                return ahead(label.text, value, grouped=self._in_brackets(start))
        if self.now.kind == "text":
            opening = self.take().text
            condition = self.condition()
            # `5, otherwise 0` says two values.
            two = opening == "otherwise" and condition != Words("")
            return said(opening, condition) if two else Node("given", (condition,))
        found = self.relation()
        if self.now.kind in ("text", "up") or (self.now.kind == "let" and self.now.spaced):
            found = self.behind(found)
        if self.at("("):
            found = self.aside(found)
        return found

    def _in_brackets(self, start: int) -> bool:
        depth = 0
        for place in range(start, self.place):
            depth += (self.tokens[place].text == "(") - (self.tokens[place].text == ")")
            if depth <= 0:
                return start < place == self.place - 1
        return False

    def cell(self) -> Tree:
        """A cell of a matrix or of a case distinction."""
        while self.accept(","):
            pass
        if self.now.text in ("&", "\\\\", "\\end"):
            return Words("")
        found = self.clause()
        while self.accept(",", ";", "."):
            if self.now.kind == "text" or self.now.text not in ("&", "\\\\", "\\end"):
                found = Node("given", (found, self.condition()))
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
            # Identically equal: `f(x) \equiv 0`.
            operators = ["="]
        return Rel(tuple(operators), tuple(terms))

    def _relation_sign(self) -> str:
        if self.now.kind == "text":
            return self._said_relation()
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

    def _said_relation(self) -> str:
        """Consume words between two values that express a relation; empty without one."""
        words, following = self.now.text, self.ahead()
        sign = SAID_RELATIONS.get(words, "")
        if words in _LIES_IN and following.text in ("[", "(", "]", "\\{"):
            sign = "in"
        ends = following.kind in ("end", "text") or following.text in CLOSERS or following.text in (",", ";")
        if sign and not ends:
            self.take()
            return sign
        return ""

    def _side(self) -> Tree:
        token = self.now
        if token.kind == "text" and token.text not in JOINS:
            words = self.take().text
            if not self.ends() and self.now.kind in ("num", "let", "cmd") and self.now.text not in RELATIONS:
                found = ahead(words, self._sets())
                return found.args[1] if isinstance(found, Node) and found.head == "label" else found
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
    places = [0, *cuts, len(found)]
    groups = [found[start:stop] for start, stop in itertools.pairwise(places) if stop > start]
    if len(groups) > 1 and any(len(each) > 1 for each in groups):
        return Node("list", tuple(_one(each, "list") for each in groups))
    return _one(found, "list")


def _named(label: Words, value: Tree) -> Tree:
    """`Minimum: 1`; words that deny the value are not its name."""
    if label.text in NO_VALUE_NAMES:
        return ahead(label.text, value)
    return said(label.text, value) if changes_ahead(label.text + " is") else Node("label", (label, value))
