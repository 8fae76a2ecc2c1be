"""Matcher: decides whether an answer's tree is equivalent to the gold's tree.

Example:

    Matcher(deadline=cpu_time() + 1).match(gold, answer)      # True, False, or Unknown is raised

Rules are not symmetric: the answer may add what the gold leaves out (a unit, a name, order).
"""

from collections.abc import Callable, Sequence

from slime_reward_math.cpu_deadline import cpu_time
from slime_reward_math.match import equations, forms, parts
from slime_reward_math.match.again import again
from slime_reward_math.match.forms import is_node
from slime_reward_math.match.piecewise import cases
from slime_reward_math.match.quantities import close, cut_off, degrees_of, is_radians, percent_of, quantity, units_agree
from slime_reward_math.match.regions import all_round, is_set_like, may_be_region, region_names, regions
from slime_reward_math.tree import Node, Num, Rel, Tree, Words, has_head
from slime_reward_math.value.same import Unknown, same
from slime_reward_math.value.units import measure

MAX_COMPARISONS = 300
"""Maximum comparisons of values in one verdict."""
MAX_LIST = 40
"""Maximum items of lists that are matched in any order."""


class OutOfTime(Exception):
    """The deadline has passed."""


class Matcher:
    """Compares two trees, for one verdict; the deadline is in thread time: the wall clock let stalls change it."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._left = MAX_COMPARISONS
        self._unknown: Unknown | None = None
        self._heads: set[str] = set()

    def decide(self, gold: Tree, answer: Tree) -> bool:
        """Whether the two are the same answer.

        Raises:
            Unknown: some comparison on the way could not be decided, and none that could made them equal.
            OutOfTime: the deadline has passed.
        """
        self._heads = parts.heads_of(gold) | parts.heads_of(answer)
        if self.match(gold, answer):
            return True
        unknown = self._unknown
        for one, two in again(gold, answer, self._heads):
            self._heads = parts.heads_of(one) | parts.heads_of(two)
            if self.match(one, two):
                return True
        if unknown is not None:
            raise unknown
        return False

    def match(self, gold: Tree, answer: Tree) -> bool:
        """Whether the two are known to be the same answer."""
        if isinstance(gold, Num) and isinstance(answer, Num):
            return gold.value == answer.value
        if cpu_time() > self._deadline:
            raise OutOfTime
        if gold == answer:
            return True
        rank = min(self._rank(gold), self._rank(answer))
        return RULES[rank](self, gold, answer)

    def _rank(self, tree: Tree) -> int:
        """The index in `RULES` of the rule for a tree."""
        if isinstance(tree, Rel):
            rank = _RELATION
        elif isinstance(tree, Words):
            rank = _WORDS
        elif isinstance(tree, Node):
            rank = _BY_HEAD.get(tree.head, _VALUE)
            if rank == _VALUE and tree.head in _ARITHMETIC:
                rank = self._arithmetic(tree)
            elif tree.head == "[]" and forms.matrix(tree) is not None:
                rank = _MATRIX
        else:
            rank = _SET if is_set_like(tree) else _VALUE
        signs = rank > _SIGNS and self._heads & _PLUS_MINUS
        return _SIGNS if signs and (has_head(tree, "pm") or has_head(tree, "mp")) else rank

    def _arithmetic(self, tree: Node) -> int:
        """The rule for a sum, a product, a quotient: degrees, matrices and differences of sets have their own."""
        if "deg" in self._heads and parts.sums_degrees(tree):
            return _DEGREES
        if "matrix" in self._heads and forms.matrix(tree) is not None:
            return _MATRIX
        return _SET if self._heads & forms.SETS and is_set_like(tree) else _VALUE

    def value(self, gold: Tree, answer: Tree) -> bool:
        """Whether two expressions have the same value, or the same to the gold's written precision."""
        if forms.infinite(gold) or forms.infinite(answer):
            return forms.infinite(gold) == forms.infinite(answer)
        if isinstance(gold, Num) and isinstance(answer, Num) and gold.value == answer.value:
            return True
        if parts.SHAPE in self._heads and (parts.shapes(gold) or parts.shapes(answer)):
            return self._shaped(gold, answer)
        self._left -= 1
        if self._left < 0:
            self._unknown = Unknown("too many comparisons")
            return False
        try:
            return same(gold, answer) or (parts.DECIMAL in self._heads and close(gold, answer))
        except Unknown as error:
            self._unknown = self._unknown or error
            return False

    def _shaped(self, gold: Tree, answer: Tree) -> bool:
        if not (isinstance(gold, Node) and isinstance(answer, Node) and gold.head == answer.head):
            return False
        if gold.head in ("+", "*"):
            return self.any_order(gold.args, answer.args)
        return self.in_order(gold.args, answer.args)

    def _unit(self, gold: Tree, answer: Tree) -> bool:
        left, right = quantity(gold), quantity(answer)
        if left.unit and right.unit:
            factor = units_agree(left.unit, right.unit)
            if factor is None:
                return False
            scaled = right.value if factor == 1 else Node("*", (Num(factor), right.value))
            return self.match(left.value, scaled)
        if is_radians(left.unit) or is_radians(right.unit):
            return self.value(left.value, right.value)
        angle = is_node(left.value, ("deg",)) or is_node(right.value, ("deg",))
        if angle and measure(left.unit or right.unit) is not None:
            # Degrees are a unit too, and no minutes of time.
            return False
        return self.match(left.value, right.value)

    def _percent(self, gold: Tree, answer: Tree) -> bool:
        return any(self.match(one, two) for one, two in percent_of(gold, answer))

    def _degrees(self, gold: Tree, answer: Tree) -> bool:
        return any(self.match(one, two) for one, two in degrees_of(gold, answer)) or self.value(gold, answer)

    def _given(self, gold: Tree, answer: Tree) -> bool:
        """A condition behind an answer: it may be missing on one side; where both have one, the answers decide."""
        return self.match(parts.without_condition(gold), parts.without_condition(answer))

    def _label(self, gold: Tree, answer: Tree) -> bool:
        names = parts.label_of(gold), parts.label_of(answer)
        both = all(isinstance(each, Words) for each in names) and is_node(gold, ("label",))
        if both and parts.said(names[0]) != parts.said(names[1]):
            return False
        return self.match(parts.labelled(gold), parts.labelled(answer))

    def _signs(self, gold: Tree, answer: Tree) -> bool:
        for one in parts.spreads(gold):
            for two in parts.spreads(answer):
                if len(one) == len(two) == 1:
                    if self.match(one[0], two[0]):
                        return True
                elif len(one) == 1 and isinstance(one[0], Rel) and one[0].ops == ("in",):
                    if self.match(one[0], Node("or", tuple(two))):
                        return True
                elif self.any_order(self.distinct(one), self.distinct(two)):
                    return True
        return False

    def distinct(self, trees: Sequence[Tree]) -> list[Tree]:
        """The trees without repetitions of an equal one."""
        found: list[Tree] = []
        for each in trees:
            if not any(self.match(other, each) for other in found):
                found.append(each)
        return found

    def any_order(self, gold: Sequence[Tree], answer: Sequence[Tree]) -> bool:
        """Whether the items match one to one, in any order."""
        if len(gold) != len(answer):
            return False
        if len(gold) > MAX_LIST:
            return self.in_order(gold, answer)
        left = list(answer)
        for each in gold:
            place = next((at for at, other in enumerate(left) if self.match(each, other)), None)
            if place is None:
                return False
            del left[place]
        return True

    def in_order(self, gold: Sequence[Tree], answer: Sequence[Tree]) -> bool:
        """Whether the items match one to one, in the order given."""
        return len(gold) == len(answer) and all(map(self.match, gold, answer))

    def _list(self, gold: Tree, answer: Tree) -> bool:
        left = [each for each in forms.items(gold) if not forms.is_aside(each)]
        right = [each for each in forms.items(answer) if not forms.is_aside(each)]
        if not left or not right:
            return False
        left, right = parts.named_once(left), parts.named_once(parts.exactly_said(right))
        if len(left) == 1 or len(right) == 1:
            if not (is_node(gold, forms.LISTS) and is_node(answer, forms.LISTS)) and len(left) == len(right) == 1:
                return self.match(left[0], right[0])
            if self._unpacked(gold, answer, left, right):
                return True
            if len(left) == len(right) == 1:
                return self.match(left[0], right[0])
        if any(isinstance(each, Rel) or is_node(each, ("ratio", "label")) for each in (*left, *right)):
            found = equations.assignments(self, left, right)
            if found is not None:
                return found
            if self.same_region(parts.relisted(gold, left), parts.relisted(answer, right)):
                return True
        union = may_be_region(left) and may_be_region(right)
        if union and not all_round(left, right) and self.same_region(gold, answer):
            return True
        # An answer may repeat an item that the gold has once.
        return self.any_order(left, right) or (len(right) > len(left) and self.any_order(left, self.distinct(right)))

    def _unpacked(self, gold: Tree, answer: Tree, left: list[Tree], right: list[Tree]) -> bool:
        single, many = (left[0], right) if len(left) == 1 else (right[0], left)
        single = equations.right_side(single) or single
        if forms.is_interval(single):
            return False
        if isinstance(single, Node) and single.head in ("()", "[]", "set") and len(many) == len(single.args):
            compare = self.any_order if single.head == "set" else self.in_order
            many = equations.in_name_order(many) if single.head == "()" else many
            return compare(many, single.args) if len(left) > 1 else compare(single.args, many)
        # `3/4 or 0.75` gives one value twice.
        only = self.distinct(many)
        return len(only) == 1 and (self.match(single, only[0]) if many is right else self.match(only[0], single))

    def _relation(self, gold: Tree, answer: Tree) -> bool:
        if isinstance(gold, Rel) and isinstance(answer, Rel):
            return equations.both(self, gold, answer) or self.same_region(gold, answer)
        rel, other = (gold, answer) if isinstance(gold, Rel) else (answer, gold)
        if isinstance(rel, Rel) and rel.ops[0] in ("in", "<", "<=", ">", ">=", "!=", "notin", "ni"):
            if self.same_region(gold, answer):
                return True
            pair = equations.as_interval(rel, other)
            return pair is not None and (self.match(pair, other) if rel is gold else self.match(other, pair))
        value = equations.stated(rel, other, rel is answer) if isinstance(rel, Rel) else None
        if value is None:
            return False
        return self.match(value, other) if rel is gold else self.match(other, value)

    def same_region(self, gold: Tree, answer: Tree) -> bool:
        names = region_names(gold), region_names(answer)
        if names[0] and names[1] and names[0] != names[1]:
            return False
        answers = regions(answer)
        return bool(answers) and any(one.equals(two) for one in regions(gold) for two in answers)

    def _matrix(self, gold: Tree, answer: Tree) -> bool:
        left, right = forms.matrix(gold), forms.matrix(answer)
        if left is not None and right is not None:
            if left.head == "call:det" or len(left.args) != len(right.args):
                return False
            return all(self._rows(one, two) for one, two in zip(left.args, right.args, strict=True))
        core = left or right
        other = answer if left is not None else gold
        entries = parts.vector(core) if core is not None else None
        if entries is None or not is_node(other, ("()", "[]")):
            return False
        pair = (entries, other.args) if isinstance(other, Node) else ((), ())
        return self.in_order(*(pair if left is not None else pair[::-1]))

    def _rows(self, gold: Tree, answer: Tree) -> bool:
        both = isinstance(gold, Node) and isinstance(answer, Node)
        return both and self.in_order(gold.args, answer.args)  # type: ignore[union-attr]  # `both` says that they are nodes

    def _set(self, gold: Tree, answer: Tree) -> bool:
        if isinstance(gold, Node) and isinstance(answer, Node) and gold.head == answer.head:
            if gold.head in forms.ROUND and self.in_order(gold.args, answer.args):
                return True
            if gold.head == "set":
                return self.any_order(self.distinct(gold.args), self.distinct(answer.args))
            if gold.head in ("union", "meet") and self.any_order(gold.args, answer.args):
                return True
            if gold.head == "such" and self._such(forms.canonical_names(gold), forms.canonical_names(answer)):
                return True
            if gold.head == "minus" and self.in_order(gold.args, answer.args):
                return True
        if parts.is_point(gold) or parts.is_point(answer):
            if any(is_node(each, forms.SETS - {"()"}) for each in (gold, answer)):
                return False
            return self.in_order(parts.items_of(gold), parts.items_of(answer))
        left, right = parts.items_of(gold), parts.items_of(answer)
        if is_node(gold, ("()", "[]")) and is_node(answer, ("()", "[]")) and len(left) > 2:
            return self.in_order(left, right)
        for one, two in ((gold, answer), (answer, gold)):
            element = forms.element_of(one)
            if element is not None and not is_node(two, forms.SETS):
                value = equations.right_side(two) or two
                return self.match(element, value) if one is gold else self.match(value, element)
            inner = parts.items_of(one)
            # A set of one thing is that thing, and a bare list item in brackets is still that item.
            pair = bool(inner) and is_node(inner[0], ("()",)) and is_node(two, ("()",))
            if is_node(one, ("set", "[]")) and len(inner) == 1 and (pair or not is_set_like(two)):
                return self.match(inner[0], two) if one is gold else self.match(two, inner[0])
        return self.same_region(gold, answer)

    def _such(self, gold: Tree, answer: Tree) -> bool:
        left, right = parts.items_of(gold), parts.items_of(answer)
        return self.match(left[0], right[0]) and self.any_order(left[1:], right[1:])

    def _words(self, gold: Tree, answer: Tree) -> bool:
        return parts.plain_words(gold) is not None and parts.plain_words(gold) == parts.plain_words(answer)


_PLUS_MINUS = frozenset({"pm", "mp"})
_ARITHMETIC = frozenset({"+", "*", "/", "neg"})
RULES: tuple[Callable[[Matcher, Tree, Tree], bool], ...] = (
    Matcher._given, parts.alike, Matcher._label, Matcher._signs, Matcher._list, Matcher._relation, Matcher._unit,
    Matcher._percent, Matcher._degrees, Matcher._matrix, Matcher._set, Matcher._words, cases, Matcher._rows,
    parts.ratio, parts.based, parts.residue, lambda matcher, gold, answer: cut_off(gold, answer), Matcher.value,
)  # fmt: skip
"""The rules, by rank: each side selects one, and the lower rank decides."""
_SIGNS, _RELATION, _DEGREES, _MATRIX, _SET, _WORDS, _VALUE = 3, 5, 8, 9, 10, 11, 18
_BY_HEAD = {
    "given": 0, "said": 1, "noted": 1, "label": 2, "pm": _SIGNS, "mp": _SIGNS, **dict.fromkeys(forms.LISTS, 4),
    "unit": 6, "percent": 7, "deg": _DEGREES, "matrix": _MATRIX, **dict.fromkeys(forms.SETS, _SET), "cases": 12,
    "row": 13, "ratio": 14, "base": 15, "residue": 16, "dots": 17,
}  # fmt: skip
