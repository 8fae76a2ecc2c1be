"""Sets of reals: unions of intervals with exact ends, so that `x < 3, x != -6` is what two intervals say.

Example:

    Reals.interval(one, None, True, False) & Reals.point(two).complement()     # [1, 2) and (2, oo)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key

from slime_reward_math.tree import Tree
from slime_reward_math.value.approximate import approximate
from slime_reward_math.value.same import Unknown, same


class NoReals(Exception):
    """What was given is not a set of reals that this module can order."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of an interval."""

    place: float
    """Where it is, approximately; infinite ends are infinite."""
    tree: Tree | None
    """What it is exactly; None at infinity."""

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

    def is_points(self) -> bool:
        """Whether it is a finite set."""
        return all(piece.low.tree is not None and piece.low.tree == piece.high.tree for piece in self.pieces)


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
