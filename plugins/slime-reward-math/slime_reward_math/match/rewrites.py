r"""Rewrites of sets, congruences, sums with dots, determinants and vectors, each suggested by the other side.

Example:

    enumerated(read(r"\{x \in \mathbb{Z} : 0 < x < 3\}"), other)      # {1, 2}
    congruent(read("x = 12k + 7"), read(r"x \equiv 7 \pmod{12}"))      # x = 7 mod 12
    closed(read("n > 4"), read(r"n \ge 5"))      # n >= 5
    components(read(r"3\mathbf{i}-4\mathbf{j}"), read("(3,-4)"))      # (3, -4)
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

from slime_reward_math.match.equations import right_side
from slime_reward_math.match.forms import LISTS, is_aside, is_domain, is_node, items, matrix, negative
from slime_reward_math.match.regions import regions
from slime_reward_math.tree import (
    Node,
    Num,
    Rel,
    Sym,
    Tree,
    Words,
    has_head,
    number,
    put,
    rebuild,
    rename,
    symbols,
    walk,
)
from slime_reward_math.value.evaluate import exactly
from slime_reward_math.value.same import COUNTS, Unknown, same

MAX_WRITTEN = 100
"""Maximum integers that are written out."""
_WHOLE = (Sym("ZZ"), Sym("NN"))


def enumerated(tree: Tree, other: Tree) -> Tree:
    """Integers between two bounds as the set that they are."""
    if isinstance(tree, Rel) and symbols(tree) in (["n"], ["N"]) and _counts(other):
        tree = Node("list", (Rel(("in",), (Sym(symbols(tree)[0]), Sym("ZZ"))), tree))
    parts = tree.args if isinstance(tree, Node) and tree.head in ("such", "list") else ()
    if (written := _listed(parts)) is not None and is_node(tree, ("such",)):
        return written
    domains = [each for each in parts if isinstance(each, Rel) and is_domain(each) and each.terms[-1] in _WHOLE]
    if not domains or not isinstance(tree, Node):
        return tree
    name = domains[0].terms[0]
    of = parts[0] if tree.head == "such" and _is_formula(parts[0], name) else None
    conditions = tuple(each for each in parts if each not in (domains[0], name, of))
    if domains[0].terms[-1] == Sym("NN"):
        # The other side decides whether the natural numbers begin with 0 or 1.
        zero = isinstance(other, Node) and number(0) in other.args
        conditions = (*conditions, Rel((">=",), (name, number(0 if zero else 1))))
    if not conditions or not all(isinstance(each, Rel) and symbols(each) == symbols(name) for each in conditions):
        return tree
    found = regions(Node("and", conditions))
    pieces = found[0].pieces if len(found) > 0 else ()
    whole: list[int] = []
    for piece in pieces:
        low, high = (exactly(end.tree) if end.tree is not None else None for end in (piece.low, piece.high))
        if low is None or high is None or high - low > MAX_WRITTEN:
            return tree
        first = math.floor(low) + 1 if not piece.low_closed else math.ceil(low)
        last = math.ceil(high) - 1 if not piece.high_closed else math.floor(high)
        whole += range(first, last + 1)
    if not pieces or len(whole) > MAX_WRITTEN:
        return tree
    return Node(
        "set", tuple(map(number, whole)) if of is None else tuple(_put(of, name, number(each)) for each in whole)
    )


def _put(tree: Tree, name: Tree, value: Tree) -> Tree:
    """A formula at a place: `2n` at 3."""
    return rebuild(tree, lambda each: value if each == name else None)


def _listed(parts: Sequence[Tree]) -> Tree | None:
    """`3k` for `k = 1, 2, 3` as the set of three; None for anything else."""
    if len(parts) < 2 or not (
        isinstance(parts[1], Rel) and parts[1].ops == ("=",) and isinstance(parts[1].terms[0], Sym)
    ):
        return None
    name, values = parts[1].terms[0], (parts[1].terms[1], *parts[2:])
    if not all(isinstance(each, Num) for each in values) or not (parts[0] == name or _is_formula(parts[0], name)):
        return None
    return Node("set", tuple(_put(parts[0], name, value) for value in values))


def _is_formula(tree: Tree, name: Tree) -> bool:
    """Whether what a set-builder lists is a formula in one name: `2n`."""
    return not isinstance(tree, Rel) and tree != name and isinstance(name, Sym) and symbols(tree) == [name.name]


def _counts(tree: Tree) -> bool:
    r"""Whether a side lists integers: `n \in \{1, 2\}`; only then is the other side's inequality about integers."""
    found = tree.terms[-1] if isinstance(tree, Rel) and tree.ops == ("in",) else tree
    return isinstance(found, Node) and found.head == "set" and all(exactly(each) is not None for each in found.args)


def excluded(tree: Tree, other: Tree) -> Tree:
    r"""`x \ne k\pi, k \in \mathbb{Z}` as the set of such x, where the other side is a set-builder."""
    if not (is_node(tree, LISTS) and isinstance(tree, Node) and has_head(other, "such")):
        return tree
    first, *rest = tree.args
    if (
        isinstance(first, Rel)
        and first.ops == ("!=",)
        and isinstance(first.terms[0], Sym)
        and all(map(is_domain, rest))
    ):
        return Node("such", (first.terms[0], first, *rest))
    return tree


_INTEGER = frozenset(
    {"for", "where", "with", "some", "any", "every", "all", "is", "an", "a", "the", "integer", "integers"}
)
_COUNTING = {"sum": "k", "prod": "k", "call:int": "t"}


def congruent(tree: Tree, other: Tree) -> Tree:
    r"""`x = 12k + 7` as `x \equiv 7 \pmod{12}`, where the other side is a congruence for the same letter."""
    parts = [each for each in items(_counted(tree)) if not is_aside(each)]
    stated = parts[0] if len(parts) == 1 else tree
    if not (isinstance(stated, Rel) and stated.ops == ("=",) and isinstance(other, Rel) and other.ops == ("equiv",)):
        return tree
    names = symbols(stated.terms[1])
    modulus = other.terms[1].args[1] if isinstance(other.terms[1], Node) and len(other.terms[1].args) == 2 else None
    if stated.terms[0] != other.terms[0] or len(names) != 1 or Sym(names[0]) == stated.terms[0]:
        return tree
    first, second, third = (exactly(put(stated.terms[1], {names[0]: number(place)})) for place in (0, 1, 2))
    if first is None or second is None or third is None or not isinstance(modulus, Num):
        return tree
    if third - second != second - first or abs(second - first) != modulus.value or first.denominator > 1:
        return tree
    return Rel(("equiv",), (stated.terms[0], Node("residue", (Num(first), modulus))))


def _counted(tree: Tree) -> Tree:
    r"""`p = 4k + 1 \text{ for some integer } k` without the declaration that k is an integer."""
    if not (isinstance(tree, Node) and tree.head == "given" and len(tree.args) == 2 and isinstance(tree.args[0], Rel)):
        return tree
    said = [each.text for each in walk(tree.args[1]) if isinstance(each, Words)]
    names = symbols(tree.args[1])
    integer = said != [] and _INTEGER.issuperset(" ".join(said).split())
    counts = len(names) == 1 and names[0] in symbols(tree.args[0].terms[-1])
    return tree.args[0] if integer and counts else tree


def counted_alike(tree: Tree, other: Tree) -> Tree:
    """Sums, products and integrals with limits, with one common name for the index."""

    def change(each: Tree) -> Tree | None:
        if not (isinstance(each, Node) and each.head in _COUNTING and len(each.args) == 4):
            return None
        body, index, *limits = (rebuild(arg, change) for arg in each.args)
        name = _COUNTING[each.head]
        if not isinstance(index, Sym) or (index.name != name and name in symbols(body)):
            return None
        return Node(each.head, (rename(body, {index.name: name}), Sym(name), *limits))

    return rebuild(tree, change)


_ALWAYS = frozenset({"n", "N"})


def closed(tree: Tree, other: Tree) -> Tree:
    """The tree with closed inequalities for integers; an inequality that would then hold nowhere is unchanged."""
    if not any(isinstance(each, Rel) and each.ops[0][0] in "<>" for each in walk(other)):
        return tree
    whole = _ALWAYS | _declared(tree) | _declared(other)

    def change(each: Tree) -> Tree | None:
        named = isinstance(each, Rel) and len(names := symbols(each)) == 1 and names[0] in whole
        return _closed(each) if named and isinstance(each, Rel) else None

    return rebuild(tree, change)


def _declared(tree: Tree) -> set[str]:
    domains = [each for each in walk(tree) if isinstance(each, Rel) and is_domain(each) and each.terms[-1] in _WHOLE]
    return {name for each in domains for name in symbols(each.terms[0])}


def _closed(rel: Rel) -> Rel | None:
    operators, terms = list(rel.ops), list(rel.terms)
    for place, (sign, (left, right)) in enumerate(zip(rel.ops, pairwise(rel.terms), strict=True)):
        step = {"<": 1, ">": -1}.get(sign, 0)
        if step and _whole(left) and isinstance(right, Sym):
            terms[place] = _moved(left, step)
        elif step and _whole(right) and isinstance(left, Sym):
            terms[place + 1] = _moved(right, -step)
        else:
            continue
        operators[place] += "="
    bounds = [each.value for each in terms if isinstance(each, Num)]
    rising = operators[0][0] == "<"
    if len(bounds) == 2 and (bounds[0] > bounds[1] if rising else bounds[0] < bounds[1]):
        return None
    return Rel(tuple(operators), tuple(terms))


def _whole(tree: Tree) -> bool:
    return isinstance(tree, Num) and tree.value.denominator == 1


def _moved(tree: Tree, step: int) -> Tree:
    return Num(tree.value + step) if isinstance(tree, Num) else tree


MAX_ITEMS = 200
"""Maximum items that are written out."""
DOTS = Sym("ldots")
_INDEX = Sym("#index")
_LISTS = frozenset({"list", "set", "()", "[]", "and"})
_STARTS = (1, 0, 2)


def written_out(tree: Tree, other: Tree) -> Tree:
    """The tree with its dots expanded."""
    if DOTS not in walk(tree):
        return tree
    return rebuild(tree, _write_out)


def _write_out(tree: Tree) -> Tree | None:
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
    shown = [_integer(each) for each in (*before, *after)]
    known = [each for each in shown if each is not None]
    first, last = known[: len(before)], known[len(before) :]
    if len(known) < len(shown):
        return ()
    step = first[1] - first[0] if len(first) > 1 else (1 if last[0] > first[0] else -1)
    if not step or (last[-1] - first[0]) % step or not 0 < (last[-1] - first[0]) // step < MAX_ITEMS:
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
                term = put(last, {name: _INDEX})
                return Node("sum" if head == "+" else "prod", (term, _INDEX, number(start), Sym(name)))
    return _numeric(head, before, after)


def _follows(last: Tree, name: str, start: int, before: Sequence[Tree], after: Sequence[Tree]) -> bool:
    """Whether the last term, counted from the start, gives the terms that are written."""
    shown = [(each, put(last, {name: number(start + place)})) for place, each in enumerate(before)]
    back = [Node("+", (Sym(name), number(-place))) for place in range(len(after))]
    shown += [(each, put(last, {name: at})) for each, at in zip(reversed(after), back, strict=True)]
    try:
        return all(same(one, two) for one, two in shown)
    except Unknown:
        return False


def _numeric(head: str, before: Sequence[Tree], after: Sequence[Tree]) -> Tree | None:
    """A sum of numbers in equal steps or equal quotients."""
    shown = [each.value for each in (*before, *after) if isinstance(each, Num)]
    if len(shown) < len(before) + len(after) or len(before) < 2 or head != "+":
        return None
    first, second, last = shown[0], shown[1], shown[-1]
    longest = sum(map(_bits, (first, second, last)))  # no term between them is longer
    ways: list[Callable[[Fraction], Fraction]] = [partial(operator.add, second - first)]
    ways += [partial(operator.mul, Fraction(second) / first)] if first else []
    for following in ways:
        terms = [Fraction(first)]
        while terms[-1] != last and len(terms) < MAX_ITEMS and _bits(terms[-1]) <= longest:
            terms.append(following(terms[-1]))
        enough = len(terms) >= len(shown)
        if enough and terms[: len(before)] == shown[: len(before)] and terms[-len(after) :] == shown[len(before) :]:
            return Num(sum(terms, Fraction(0)))
    return None


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _run(head: str, before: Sequence[Tree], after: Sequence[Tree]) -> Tree | None:
    """`a_1 + a_2 + ... + a_n`, ascending or descending, with all names between its ends."""
    names = [each.name if isinstance(each, Sym) else "" for each in (*before, *after)]
    stems = {name.partition("_")[0] for name in names}
    if len(stems) != 1 or not all("_" in name for name in names):
        return None
    near = [*itertools.pairwise(names[: len(before)]), *itertools.pairwise(names[len(before) :])]
    if not all(_neighbours(*pair) for pair in near):
        return None
    return Node("+" if head == "+" else "*", (Sym("#run"), *map(Sym, sorted((names[0], names[-1])))))


def _neighbours(one: str, two: str) -> bool:
    left, right = sorted((one.partition("_")[2], two.partition("_")[2]), key=lambda each: (len(each), each))
    if left.isdecimal() and right.isdecimal() and len(right) < 9:
        return int(right) - int(left) == 1
    return right in (f"{left}-1", f"{left}+1")


MAX_ROWS = 4
"""Maximum rows of an expanded determinant: 24 products of four."""


def expanded(tree: Tree, other: Tree) -> Tree:
    """The tree with its determinants as sums of products."""
    if not (has_head(tree, "call:det") or (has_head(tree, "abs") and has_head(tree, "matrix"))):
        return tree
    return rebuild(tree, _expand_one)


def identity(tree: Tree, other: Tree) -> Tree:
    """The tree with `I` or `I_2` as the identity matrix, where the other side is a square one."""
    whole = matrix(other)
    rows = _square(whole.args) if whole is not None else None
    if not rows or has_head(tree, "matrix"):
        return tree
    size = range(len(rows))
    unit = Node("matrix", tuple(Node("row", tuple(number(int(row == at)) for at in size)) for row in size))
    names = {"I", f"I_{len(rows)}", "I_n"}
    return rebuild(tree, lambda each: unit if isinstance(each, Sym) and each.name in names else None)


def inverted(tree: Tree, other: Tree) -> Tree:
    r"""The tree with `M^{-1}` as the matrix that it is: signed minors, mirrored, over the determinant."""
    return rebuild(tree, _inverse)


def _inverse(tree: Tree) -> Tree | None:
    if not (isinstance(tree, Node) and tree.head == "^" and _is_minus_one(tree.args[1])):
        return None
    found = matrix(tree.args[0])
    rows = _square(found.args) if found is not None else None
    if not rows:
        return None
    below = _expansion(rows)
    size = range(len(rows))
    return Node("matrix", tuple(Node("row", tuple(_cofactor(rows, at, row, below) for at in size)) for row in size))


def _is_minus_one(tree: Tree) -> bool:
    return tree in (number(-1), negative(number(1)), Node("neg", (number(1),)))


def _cofactor(rows: list[tuple[Tree, ...]], row: int, column: int, below: Tree) -> Tree:
    rest = [(*each[:column], *each[column + 1 :]) for at, each in enumerate(rows) if at != row]
    minor = _expansion(rest) if rest else number(1)
    return Node("/", (negative(minor) if (row + column) % 2 else minor, below))


def _square(args: tuple[Tree, ...]) -> list[tuple[Tree, ...]] | None:
    rows = [row.args for row in args if isinstance(row, Node) and row.head == "row"]
    square = 0 < len(rows) <= MAX_ROWS and len(rows) == len(args) and all(len(row) == len(rows) for row in rows)
    return rows if square else None


def _expand_one(tree: Tree) -> Tree | None:
    if not isinstance(tree, Node) or tree.head not in ("call:det", "abs"):
        return None
    inner = tree.args[0]
    args = inner.args if len(tree.args) == 1 and isinstance(inner, Node) and inner.head == "matrix" else tree.args
    rows = _square(args)
    return None if rows is None else _expansion(rows)


def _expansion(rows: list[tuple[Tree, ...]]) -> Tree:
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Tree] = []
    for place, factor in enumerate(rows[0]):
        minor = _expansion([(*row[:place], *row[place + 1 :]) for row in rows[1:]])
        product = Node("*", (factor, minor))
        terms.append(negative(product) if place % 2 else product)
    return Node("+", tuple(terms))


_ARROWS = ("call:vec", "call:hat")
_BASIS = ("i", "j", "k")


def without_arrows(tree: Tree, other: Tree) -> Tree:
    r"""`\vec{a}` as `a`, if the other side has no arrows; the arrow over two letters gives their order."""
    if not any(has_head(tree, head) for head in _ARROWS) or any(has_head(other, head) for head in _ARROWS):
        return tree

    def change(each: Tree) -> Tree | None:
        arrow = isinstance(each, Node) and each.head in _ARROWS and isinstance(each.args[0], Sym)
        return each.args[0] if arrow and isinstance(each, Node) else None

    return rebuild(tree, change)


def components(tree: Tree, other: Tree) -> Tree:
    """A sum over unit vectors as a tuple, where the other side is one or a column."""
    size = _size(right_side(other) or other)
    if size not in (2, 3) or not isinstance(tree, Node) or tree.head not in ("+", "*", "neg", "/"):
        return tree
    if not {"j", "k"}.intersection(symbols(tree)):
        return tree
    found = tuple(_at_axes(tree, tuple(int(place == axis) for axis in range(3))) for place in range(3))
    try:
        linear = same(_at_axes(tree, (0, 0, 0)), number(0)) and same(_at_axes(tree, (1, 1, 1)), Node("+", found))
        return Node("()", found[:size]) if linear and (size == 3 or same(found[2], number(0))) else tree
    except Unknown:
        return tree


def scaled(tree: Tree, other: Tree) -> Tree:
    r"""`\frac15(3,4)` with its factor in every place, where the other side is a tuple or a column of as many."""
    if not isinstance(tree, Node) or tree.head not in ("*", "/", "neg"):
        return tree
    places = [place for place, each in enumerate(tree.args) if has_head(each, "()")]
    if len(places) != 1 or (tree.head == "/" and places != [0]):
        return tree
    core = scaled(tree.args[places[0]], other)
    if not isinstance(core, Node) or core.head != "()" or len(core.args) != _size(right_side(other) or other):
        return tree

    def entry(each: Tree) -> Tree:
        return Node(tree.head, tuple(each if place in places else arg for place, arg in enumerate(tree.args)))

    return Node("()", tuple(map(entry, core.args)))


def _size(tree: Tree) -> int:
    if not isinstance(tree, Node):
        return 0
    column = tree.head == "matrix" and all(isinstance(row, Node) and len(row.args) == 1 for row in tree.args)
    return len(tree.args) if tree.head == "()" or column else 0


def _at_axes(tree: Tree, values: tuple[int, ...]) -> Tree:
    places = dict(zip(_BASIS, values, strict=True))

    def change(each: Tree) -> Tree | None:
        if isinstance(each, Node) and each.head in _ARROWS:
            each = each.args[0]
        return number(places[each.name]) if isinstance(each, Sym) and each.name in places else None

    return rebuild(tree, change)
