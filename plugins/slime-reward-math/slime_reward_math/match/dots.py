r"""Dots: lists and sums that go on: `3, 4, \ldots, 10`, `1 + 2 + \cdots + n`.

Example:

    written_out(read(r"3,4,\ldots,7"), other)      # 3, 4, 5, 6, 7
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction

from slime_reward_math.tree import Node, Num, Sym, Tree, number, rebuild, symbols, walk
from slime_reward_math.value.same import COUNTS, Unknown, same

MAX_WRITTEN = 200
"""Items that are written out."""
DOTS = Sym("ldots")
_INDEX = Sym("#index")
_LISTS = frozenset({"list", "set", "()", "[]", "and"})
_STARTS = (1, 0, 2)
"""Where the index of a sum may start."""


def written_out(tree: Tree, other: Tree) -> Tree:
    """The tree with what its dots stand for."""
    if DOTS not in walk(tree):
        return tree
    return rebuild(tree, _change)


def _change(tree: Tree) -> Tree | None:
    if not (isinstance(tree, Node) and DOTS in tree.args):
        return None
    place = tree.args.index(DOTS)
    before, after = tree.args[:place], tree.args[place + 1 :]
    if not before or not after or DOTS in after:
        return None
    if tree.head in _LISTS:
        found = _between(before, after)
        return Node(tree.head, found) if found else None
    return _series(tree.head, before, after) if tree.head in ("+", "*") else None


def _between(before: Sequence[Tree], after: Sequence[Tree]) -> tuple[Tree, ...]:
    """Integers in equal steps; nothing for anything else."""
    shown = [_integer(each) for each in (*before, *after)]
    known = [each for each in shown if each is not None]
    first, last = known[: len(before)], known[len(before) :]
    if len(known) < len(shown):
        return ()
    step = first[1] - first[0] if len(first) > 1 else (1 if last[0] > first[0] else -1)
    if not step or (last[-1] - first[0]) % step or not 0 < (last[-1] - first[0]) // step < MAX_WRITTEN:
        return ()
    found = list(range(first[0], last[-1] + (1 if step > 0 else -1), step))
    if found[: len(first)] != first or found[-len(last) :] != last:
        return ()
    return tuple(map(number, found))


def _integer(tree: Tree) -> int | None:
    if isinstance(tree, Node) and tree.head == "neg":
        inner = _integer(tree.args[0])
        return None if inner is None else -inner
    return int(tree.value) if isinstance(tree, Num) and tree.value.denominator == 1 else None


def _series(head: str, before: Sequence[Tree], after: Sequence[Tree]) -> Tree | None:
    """A sum or a product with dots as one with an index, a number, or a run of names between its ends."""
    run = _run(head, before, after)
    if run is not None:
        return run
    last = after[-1]
    for name in COUNTS.intersection(symbols(last)):
        for start in _STARTS:
            if _follows(last, name, start, before, after):
                term = _put(last, name, _INDEX)
                return Node("sum" if head == "+" else "prod", (term, _INDEX, number(start), Sym(name)))
    return _numeric(head, before, after)


def _follows(last: Tree, name: str, start: int, before: Sequence[Tree], after: Sequence[Tree]) -> bool:
    """Whether the last term, counted from the start, gives the terms that are written."""
    shown = [(each, _put(last, name, number(start + place))) for place, each in enumerate(before)]
    back = [Node("+", (Sym(name), number(-place))) for place in range(len(after))]
    shown += [(each, _put(last, name, at)) for each, at in zip(reversed(after), back, strict=True)]
    try:
        return all(same(one, two) for one, two in shown)
    except Unknown:
        return False


def _put(tree: Tree, name: str, value: Tree) -> Tree:
    def change(each: Tree) -> Tree | None:
        return value if each == Sym(name) else None

    return rebuild(tree, change)


def _numeric(head: str, before: Sequence[Tree], after: Sequence[Tree]) -> Tree | None:
    """A sum of numbers in equal steps or equal quotients."""
    shown = [each.value for each in (*before, *after) if isinstance(each, Num)]
    if len(shown) < len(before) + len(after) or len(before) < 2 or head != "+":
        return None
    first, second, last = shown[0], shown[1], shown[-1]
    terms = [first]
    while terms[-1] != last and len(terms) < MAX_WRITTEN:
        step = second - first
        terms.append(terms[-1] + step)
    if not _agrees(terms, shown, len(before)):
        terms = [first]
        while first and terms[-1] != last and len(terms) < MAX_WRITTEN:
            terms.append(terms[-1] * (second / first))
        if not _agrees(terms, shown, len(before)):
            return None
    return Num(sum(terms, Fraction(0)))


def _agrees(terms: list[Fraction], shown: list[Fraction], before: int) -> bool:
    behind = len(shown) - before
    return len(terms) >= len(shown) and terms[:before] == shown[:before] and terms[-behind:] == shown[before:]


def _run(head: str, before: Sequence[Tree], after: Sequence[Tree]) -> Tree | None:
    """`a_1 + a_2 + ... + a_n`, and backwards: the names between two ends, whichever comes first."""
    names = [each.name if isinstance(each, Sym) else "" for each in (*before, *after)]
    stems = {name.partition("_")[0] for name in names}
    if len(stems) != 1 or not all("_" in name for name in names):
        return None
    near = [*itertools.pairwise(names[: len(before)]), *itertools.pairwise(names[len(before) :])]
    if not all(_neighbours(*pair) for pair in near):
        return None
    return Node("+" if head == "+" else "*", (Sym("#run"), *map(Sym, sorted((names[0], names[-1])))))


def _neighbours(one: str, two: str) -> bool:
    """Whether two subscripts are one apart."""
    left, right = sorted((one.partition("_")[2], two.partition("_")[2]), key=lambda each: (len(each), each))
    if left.isdecimal() and right.isdecimal() and len(right) < 9:
        return int(right) - int(left) == 1
    return right in (f"{left}-1", f"{left}+1")
