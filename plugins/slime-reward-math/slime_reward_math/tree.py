"""The small typed trees that answers are read into: numbers, symbols, words, relations, and nodes with a head.

Example:

    Node("+", (Sym("x"), Num(Fraction(1))))      # x + 1
    Rel(("<",), (Sym("x"), Num(Fraction(1))))    # x < 1

Trees are never modified. They are not frozen dataclasses, because creating one would take three times as long.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias


@dataclass(slots=True)
class Num:
    """A rational number, exactly as written."""

    value: Fraction
    places: int = field(default=0, compare=False)
    """Digits after the decimal point as it was written; 0 for integers."""
    digits: int = field(default=0, compare=False)
    """Significant digits as written, for the rounding rules."""


@dataclass(slots=True)
class Sym:
    """A variable or a constant: `x`, `x_1`, `pi`, `e`, `i`, `inf`."""

    name: str
    """Its name, subscript included."""


@dataclass(slots=True)
class Words:
    """Plain language: a label, an annotation, a unit, or a whole answer in words."""

    text: str
    """Lower case, single spaces, no full stop."""


@dataclass(slots=True)
class Node:
    """An operation, a function, a bracket or a structure over other trees."""

    head: str
    """What it is: `+`, `sin`, `call:f`, `list`, `set`, `[)`, `matrix`, ..."""
    args: "tuple[Tree, ...]"


@dataclass(slots=True)
class Rel:
    """A chain of relations: `a < b <= c` has two operators and three terms."""

    ops: tuple[str, ...]
    """Among `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (approximately), `in`, `to`, and names of rarer ones."""
    terms: "tuple[Tree, ...]"


Tree: TypeAlias = Num | Sym | Words | Node | Rel
"""The tree of a parsed answer."""

CONSTANTS = frozenset({"pi", "e", "i", "inf", "RR", "ZZ", "NN", "QQ", "CC", "undefined"})
"""Symbols that are not variables."""


def children(tree: Tree) -> tuple[Tree, ...]:
    """The trees directly below."""
    if isinstance(tree, Node):
        return tree.args
    return tree.terms if isinstance(tree, Rel) else ()


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree and everything below it, parents first; the reader bounds the depth, so recursion is safe."""
    stack = [tree]
    while stack:
        each = stack.pop()
        yield each
        stack.extend(reversed(children(each)))


def names_and_heads(tree: Tree, names: dict[str, None], heads: set[str]) -> None:
    """Gather the names of all symbols, in order of appearance, and the heads of all nodes.

    Recursive, because a generator takes three times as long, and this runs more than once for most trees.
    """
    if isinstance(tree, Node):
        heads.add(tree.head)
        for each in tree.args:
            names_and_heads(each, names, heads)
    elif isinstance(tree, Sym):
        names[tree.name] = None
    elif isinstance(tree, Rel):
        for each in tree.terms:
            names_and_heads(each, names, heads)


def symbols(tree: Tree) -> list[str]:
    """Names of the variables in order of appearance."""
    if isinstance(tree, Num):
        return []
    names: dict[str, None] = {}
    names_and_heads(tree, names, set())
    return [name for name in names if name not in CONSTANTS and name[0] != "#"]


def has_head(tree: Tree, head: str) -> bool:
    """Whether some node of the tree has this head."""
    heads: set[str] = set()
    names_and_heads(tree, {}, heads)
    return head in heads


def rebuild(tree: Tree, change: Callable[[Tree], Tree | None]) -> Tree:
    """The tree with subtrees replaced where `change` returns another tree; parents come first."""
    changed = change(tree)
    if changed is not None:
        return changed
    if isinstance(tree, Node):
        return Node(tree.head, tuple(rebuild(each, change) for each in tree.args))
    if isinstance(tree, Rel):
        return Rel(tree.ops, tuple(rebuild(each, change) for each in tree.terms))
    return tree


def put(tree: Tree, values: Mapping[str, Tree]) -> Tree:
    """The tree with symbols replaced, by their names."""
    return rebuild(tree, lambda each: values.get(each.name) if isinstance(each, Sym) else None)


def rename(tree: Tree, names: Mapping[str, str]) -> Tree:
    """The tree with variables renamed."""
    return put(tree, {old: Sym(new) for old, new in names.items()})


def number(value: int) -> Num:
    """An integer as a tree."""
    return Num(Fraction(value))


def listed(names: str) -> frozenset[str]:
    """The words of a text as a set: long tables of names stay readable."""
    return frozenset(names.split())


def is_constant(tree: Tree) -> bool:
    """Whether a value holds numbers, pi and e alone."""
    if isinstance(tree, Sym):
        return tree.name in ("pi", "e")
    if isinstance(tree, Node):
        return all(is_constant(each) for each in tree.args)
    return isinstance(tree, Num)


MAX_SHOWN = 500
"""Maximum characters of a shown tree."""
_INFIX = {"+": " + ", "*": "*", "/": "/", "^": "^", "union": " u ", "meet": " n ", "minus": " \\ ", "ratio": ":"}


def show(tree: Tree) -> str:
    """The tree in one line, cut off where it is too long."""
    text = _show(tree)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _show(tree: Tree) -> str:
    if isinstance(tree, Num):
        text = str(tree.value) if tree.value.numerator.bit_length() < 1_000 else "a number of many digits"
        return f"({text})" if "/" in text else text
    if isinstance(tree, Sym):
        return tree.name
    if isinstance(tree, Words):
        return f"'{tree.text}'"
    if isinstance(tree, Rel):
        signs = [*(f" {sign} " for sign in tree.ops), ""]
        return "".join(_show(term) + sign for term, sign in zip(tree.terms, signs, strict=True))
    return _node(tree)


def _node(tree: Node) -> str:
    shown = [_show(each) for each in tree.args]
    if tree.head in _INFIX:
        return "(" + _INFIX[tree.head].join(shown) + ")"
    if len(tree.head) == 2 and tree.head[0] in "([":
        return tree.head[0] + ", ".join(shown) + tree.head[1]
    if tree.head == "set":
        return "{" + ", ".join(shown) + "}"
    if tree.head == "neg":
        return "-" + shown[0]
    return f"{tree.head.removeprefix('call:')}({', '.join(shown)})"


_CAPITAL = re.compile(r"(\\.)|([A-Z])")


def folded(pattern: str) -> re.Pattern[str]:
    r"""The pattern for texts in lower case, its own capitals included; `\S` and its like stay what they are."""
    return re.compile(_CAPITAL.sub(lambda match: match[1] or match[2].lower(), pattern))


def low_case(text: str) -> str:
    """The text in lower case, with every sign where it was; a few signs of other scripts would move the rest."""
    low = text.lower()
    return low if len(low) == len(text) else text
