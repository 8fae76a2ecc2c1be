r"""Congruences and indices: what a letter of one's own choice counts through.

Example:

    congruent(read("x = 12k + 7"), read(r"x \equiv 7 \pmod{12}"))      # x = 7 mod 12
"""

from slime_reward_math.match.forms import is_aside, items
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number, rebuild, rename, symbols, walk
from slime_reward_math.value.approximate import exactly

_INTEGER = frozenset(
    {"for", "where", "with", "some", "any", "every", "all", "is", "an", "a", "the", "integer", "integers"}
)
"""Words that say of a letter no more than that it is an integer."""
_INDEX = {"sum": "k", "prod": "k", "call:int": "t"}


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
    first, second, third = (exactly(_at(stated.terms[1], names[0], place)) for place in (0, 1, 2))
    if first is None or second is None or third is None or not isinstance(modulus, Num):
        return tree
    if third - second != second - first or abs(second - first) != modulus.value or first.denominator > 1:
        return tree
    return Rel(("equiv",), (stated.terms[0], Node("residue", (Num(first), modulus))))


def _counted(tree: Tree) -> Tree:
    r"""`p = 4k + 1 \text{ for some integer } k` without what says that k is an integer."""
    if not (isinstance(tree, Node) and tree.head == "given" and len(tree.args) == 2 and isinstance(tree.args[0], Rel)):
        return tree
    said = [each.text for each in walk(tree.args[1]) if isinstance(each, Words)]
    names = symbols(tree.args[1])
    integer = said != [] and _INTEGER.issuperset(" ".join(said).split())
    counts = len(names) == 1 and names[0] in symbols(tree.args[0].terms[-1])
    return tree.args[0] if integer and counts else tree


def _at(tree: Tree, name: str, place: int) -> Tree:
    return rebuild(tree, lambda each: number(place) if each == Sym(name) else None)


def counted_alike(tree: Tree, other: Tree) -> Tree:
    """Sums, products and integrals with limits under one name of what they count through."""

    def change(each: Tree) -> Tree | None:
        if not (isinstance(each, Node) and each.head in _INDEX and len(each.args) == 4):
            return None
        body, index, *limits = (rebuild(arg, change) for arg in each.args)
        name = _INDEX[each.head]
        if not isinstance(index, Sym) or (index.name != name and name in symbols(body)):
            return None
        return Node(each.head, (rename(body, {index.name: name}), Sym(name), *limits))

    return rebuild(tree, change)
