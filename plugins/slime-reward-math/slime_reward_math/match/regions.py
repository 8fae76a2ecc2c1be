r"""Regions: which set of reals an interval, an inequality, a set-builder or a union of them means.

Example:

    regions(read(r"x < 1 \text{ or } x > 2"))      # [(-oo, 1) and (2, oo)]

A set is a union of intervals with exact ends, so that `x < 3, x != -6` equals a union of two intervals.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, reduce

from slime_reward_math.match.forms import DOMAINS, LISTS, ROUND, infinite, minus, negative
from slime_reward_math.tree import Node, Rel, Sym, Tree, number, put, symbols
from slime_reward_math.value.evaluate import approximate, exactly
from slime_reward_math.value.same import Unknown, same


class NoReals(Exception):
    """The input is not a set of reals that this module can order."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of an interval."""

    place: float
    """Where it is, approximately; infinite ends are infinite."""
    tree: Tree | None
    """Its exact value; None at infinity."""

    def compare(self, other: "End") -> int:
        """-1, 0 or 1."""
        near = abs(self.place - other.place) <= 1e-9 * max(1.0, abs(self.place))
        if self.tree is not None and other.tree is not None and near:
            try:
                if same(self.tree, other.tree):
                    return 0
            except Unknown as error:
                raise NoReals from error
        return (self.place > other.place) - (self.place < other.place)


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval that is not empty."""

    low: End
    high: End
    low_closed: bool
    high_closed: bool


def end(tree: Tree | None, sign: int = 0) -> End:
    """An end from a constant; `sign` of the infinity for None.

    Raises:
        NoReals: the tree is no real constant.
    """
    if tree is None:
        return End(float("inf") * sign, None)
    place = approximate(tree)
    if place is None:
        raise NoReals
    return End(place, tree)


@dataclass(frozen=True, slots=True)
class Reals:
    """A finite union of intervals, sorted, disjoint and merged."""

    pieces: tuple[Piece, ...]

    @classmethod
    def interval(cls, low: Tree | None, high: Tree | None, low_closed: bool, high_closed: bool) -> "Reals":
        """One interval; None is minus infinity below and infinity above. Empty if its ends are crossed."""
        start, stop = end(low, -1), end(high, 1)
        order = start.compare(stop)
        if order > 0 or (order == 0 and not (low_closed and high_closed)):
            return cls(())
        return cls((Piece(start, stop, low_closed and low is not None, high_closed and high is not None),))

    @classmethod
    def everything(cls) -> "Reals":
        """The whole line."""
        return cls.interval(None, None, False, False)

    @classmethod
    def points(cls, trees: Iterable[Tree]) -> "Reals":
        """A finite set."""
        found = cls(())
        for tree in trees:
            found |= cls.interval(tree, tree, True, True)
        return found

    def __or__(self, other: "Reals") -> "Reals":
        ordered = sorted((*self.pieces, *other.pieces), key=cmp_to_key(_by_low))
        merged: list[Piece] = []
        for piece in ordered:
            if merged and _touch(merged[-1], piece):
                merged[-1] = _join(merged[-1], piece)
            else:
                merged.append(piece)
        return Reals(tuple(merged))

    def __and__(self, other: "Reals") -> "Reals":
        found = [_overlap(one, two) for one in self.pieces for two in other.pieces]
        return Reals(tuple(each for each in found if each is not None))

    def complement(self) -> "Reals":
        """Everything else."""
        rest, low, closed = [], end(None, -1), False
        for piece in self.pieces:
            if low.compare(piece.low) < 0 or (closed and not piece.low_closed and low.compare(piece.low) == 0):
                rest.append(Piece(low, piece.low, closed, not piece.low_closed and piece.low.tree is not None))
            low, closed = piece.high, not piece.high_closed
        if low.place != float("inf"):
            rest.append(Piece(low, end(None, 1), closed, False))
        return Reals(tuple(rest))

    def equals(self, other: "Reals") -> bool:
        """Whether both hold the same numbers."""
        return len(self.pieces) == len(other.pieces) and all(map(_same_piece, self.pieces, other.pieces))


def _by_low(one: Piece, two: Piece) -> int:
    return one.low.compare(two.low) or (two.low_closed - one.low_closed)


def _touch(one: Piece, two: Piece) -> bool:
    order = two.low.compare(one.high)
    return order < 0 or (order == 0 and (one.high_closed or two.low_closed))


def _join(one: Piece, two: Piece) -> Piece:
    order = one.high.compare(two.high)
    high = one.high if order >= 0 else two.high
    closed = (one.high_closed if order >= 0 else two.high_closed) or (order == 0 and two.high_closed)
    return Piece(one.low, high, one.low_closed, closed)


def _overlap(one: Piece, two: Piece) -> Piece | None:
    low, low_closed = _inner(one.low, one.low_closed, two.low, two.low_closed, lambda order: order > 0)
    high, high_closed = _inner(one.high, one.high_closed, two.high, two.high_closed, lambda order: order < 0)
    order = low.compare(high)
    if order > 0 or (order == 0 and not (low_closed and high_closed)):
        return None
    return Piece(low, high, low_closed, high_closed)


def _inner(one: End, one_closed: bool, two: End, two_closed: bool, first: Callable[[int], bool]) -> tuple[End, bool]:
    order = one.compare(two)
    if order == 0:
        return one, one_closed and two_closed
    return (one, one_closed) if first(order) else (two, two_closed)


def _same_piece(one: Piece, two: Piece) -> bool:
    closed = one.low_closed == two.low_closed and one.high_closed == two.high_closed
    return closed and one.low.compare(two.low) == 0 and one.high.compare(two.high) == 0


MAX_PIECES = 40
"""Parts of a union."""
_SIGNS = frozenset({"<", "<=", ">", ">=", "!="})
_INEQUALITIES = _SIGNS | {"in", "notin"}


def regions(tree: Tree) -> list[Reals]:
    """The sets of reals that a tree may mean: one, two if a comma may mean `and` or `or`, none if it is no set."""
    try:
        return _regions(tree)
    except NoReals:
        return []


def may_be_region(parts: Sequence[Tree]) -> bool:
    """Whether a list may be a set of reals: several finite tuples in a row are points, and no union of intervals."""
    if len(parts) > 1 and all(isinstance(each, Node) and each.head == "()" for each in parts):
        return any(infinite(end) for each in parts if isinstance(each, Node) for end in each.args)
    return any(is_set_like(each) for each in parts)


def all_round(gold: Sequence[Tree], answer: Sequence[Tree]) -> bool:
    """Whether two lists hold only brackets, equally many, so that brackets are compared in pairs, not as a union."""
    return len(gold) == len(answer) > 1 and all(
        isinstance(each, Node) and each.head in ROUND for each in (*gold, *answer)
    )


def region_names(tree: Tree) -> set[str]:
    """The free variables of an inequality, without variables that a set-builder binds."""
    if isinstance(tree, Rel):
        return set(symbols(tree)) if tree.ops[0] not in ("in", "notin") else set(symbols(tree.terms[0]))
    if isinstance(tree, Node) and tree.head in LISTS:
        return set().union(*map(region_names, tree.args))
    return set()


def _regions(tree: Tree) -> list[Reals]:
    if isinstance(tree, Node) and tree.head in LISTS:
        parts = [_region(each) for each in tree.args if not _is_real_line(each)]
        if not parts or len(parts) > MAX_PIECES or not all(isinstance(each, Rel | Node) for each in tree.args):
            return []
        both = [reduce(Reals.__or__, parts), reduce(Reals.__and__, parts)]
        return {"or": both[:1], "and": both[1:] + both[:1]}.get(tree.head, both)
    return [_region(tree)]


def _is_real_line(tree: Tree) -> bool:
    return isinstance(tree, Rel) and tree.ops == ("in",) and tree.terms[1] == Sym("RR")


def _region(tree: Tree) -> Reals:
    if isinstance(tree, Rel):
        return _relation(tree)
    if tree == Sym("RR"):
        return Reals.everything()
    if isinstance(tree, Sym) and tree.name in ("RR>=0", "RR<=0"):
        positive = tree.name[2] == ">"
        return Reals.interval(number(0) if positive else None, None if positive else number(0), positive, not positive)
    if isinstance(tree, Sym) and tree.name in ("RR+", "RR^+", "RR-", "RR*"):
        half = Reals.interval(number(0), None, False, False)
        return {"-": Reals.interval(None, number(0), False, False), "*": Reals.points([number(0)]).complement()}.get(
            tree.name[-1], half
        )
    if not isinstance(tree, Node):
        raise NoReals
    if tree.head in ROUND and len(tree.args) == 2:
        return _interval(tree)
    return _combined(tree)


def _combined(tree: Node) -> Reals:
    if len(tree.args) > MAX_PIECES:
        raise NoReals
    if tree.head == "set":
        return Reals.points(tree.args)
    if tree.head == "union":
        return reduce(Reals.__or__, map(_region, tree.args))
    if tree.head == "meet":
        return reduce(Reals.__and__, map(_region, tree.args))
    if tree.head == "minus":
        return _region(tree.args[0]) & _region(tree.args[1]).complement()
    if tree.head == "+" and isinstance(tree.args[-1], Node) and tree.args[-1].head == "neg":
        return _region(tree.args[0]) & _region(tree.args[-1].args[0]).complement()
    if tree.head == "such":
        return _such(tree)
    if tree.head in LISTS:
        return _regions(tree)[0]
    raise NoReals


def _such(tree: Node) -> Reals:
    element, *conditions = tree.args
    found = Reals.everything()
    if isinstance(element, Rel):
        found = _region(element)
        element = element.terms[0]
    if not isinstance(element, Sym):
        # The points `(t, 2t)` are not reals.
        raise NoReals
    for each in conditions:
        if symbols(each) != symbols(element):
            raise NoReals
        found &= _region(each)
    return found


def _interval(tree: Node) -> Reals:
    low, high = tree.args
    closed_at_infinity = (infinite(low) and tree.head[0] == "[") or (infinite(high) and tree.head[1] == "]")
    if infinite(low) > 0 or infinite(high) < 0 or closed_at_infinity:
        raise NoReals
    bounds = approximate(low), approximate(high)
    closed = tree.head == "[]"
    if (
        bounds[0] is not None
        and bounds[1] is not None
        and (bounds[0] > bounds[1] or (bounds[0] == bounds[1] and not closed))
    ):
        # (2, 1) and (1, 1) are pairs, and no intervals that happen to be empty.
        raise NoReals
    return Reals.interval(
        None if infinite(low) else low, None if infinite(high) else high, tree.head[0] == "[", tree.head[1] == "]"
    )


def _relation(tree: Rel) -> Reals:
    if tree.ops == ("=",) and isinstance(tree.terms[0], Sym) and not symbols(tree.terms[1]):
        # An equation is a set only together with inequalities.
        return Reals.points([tree.terms[1]])
    if not set(tree.ops) <= _INEQUALITIES:
        raise NoReals
    if tree.ops[0] in ("in", "notin"):
        if len(tree.ops) > 1 or not _names_one(tree.terms[0]):
            raise NoReals
        inner = _region(tree.terms[1])
        return inner if tree.ops[0] == "in" else inner.complement()
    if len(symbols(tree)) != 1:
        raise NoReals
    pairs = zip(tree.terms, tree.ops, tree.terms[1:], strict=False)
    return reduce(Reals.__and__, (_half_line(left, sign, right) for left, sign, right in pairs))


def _names_one(tree: Tree) -> bool:
    return isinstance(tree, Sym) or (isinstance(tree, Node) and tree.head.startswith("call:"))


def _half_line(left: Tree, sign: str, right: Tree) -> Reals:
    if infinite(left) or infinite(right):
        return Reals.everything()
    absolute = _absolute(left, sign, right)
    if absolute is not None:
        return absolute
    difference = minus(left, right)
    (name,) = symbols(difference) or (None,)
    if name is None:
        raise NoReals
    at = [put(difference, {name: number(place)}) for place in (0, 1, 2, 7)]
    bend = Node("+", (at[2], at[0], Node("*", (number(-2), at[1]))))
    slope = minus(at[1], at[0])
    steep = approximate(slope)
    if not steep or not _is_zero(bend) or not _is_zero(minus(minus(at[3], at[0]), Node("*", (number(7), slope)))):
        raise NoReals
    root = Node("/", (negative(at[0]), slope))
    if sign == "!=":
        return Reals.points([root]).complement()
    closed = sign.endswith("=")
    if (sign[0] == "<") == (steep > 0):
        return Reals.interval(None, root, False, closed)
    return Reals.interval(root, None, closed, False)


def _is_zero(tree: Tree) -> bool:
    exact = exactly(tree)
    if exact is not None:
        return exact == 0
    size = approximate(tree)
    try:
        return size is not None and abs(size) < 1e-20 and same(tree, number(0))
    except Unknown:
        return False


def _absolute(left: Tree, sign: str, right: Tree) -> Reals | None:
    """Where `|x - 1| < 3` holds."""
    if isinstance(right, Node) and right.head == "abs" and sign in _SIGNS:
        left, right, sign = right, left, sign.translate(str.maketrans("<>", "><"))
    if not (isinstance(left, Node) and left.head == "abs" and not symbols(right) and sign[0] in "<>"):
        return None
    inner, closed = left.args[0], sign.endswith("=")
    within = sign[0] == "<"
    up = _half_line(inner, ("<=" if closed else "<") if within else (">=" if closed else ">"), right)
    down = _half_line(inner, (">=" if closed else ">") if within else ("<=" if closed else "<"), negative(right))
    return up & down if within else up | down


def is_set_like(tree: Tree) -> bool:
    """Whether a tree is written as a set of reals."""
    if isinstance(tree, Rel):
        return bool(set(tree.ops) & _INEQUALITIES)
    if isinstance(tree, Sym):
        return tree.name in DOMAINS or tree.name[:2] == "RR"
    if isinstance(tree, Node) and tree.head == "+":
        return is_set_like(tree.args[0])
    return isinstance(tree, Node) and (tree.head in ROUND or tree.head in ("set", "union", "meet", "minus", "such"))
