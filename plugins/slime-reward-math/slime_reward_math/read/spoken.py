r"""Spoken: values in words, and the effect of words on the value next to them: `one fourth`, `half of 5`, `5 or more`.

Example:

    ahead("the square root of", number(2))      # Node("root", (2, 2))
    behind(number(5), "at most")                # Node("(]", (-inf, 5)): a comparison is a set of reals

Words that change a value in a way that is not understood are kept: `Node("said", (words, value))` equals only itself.
"""

from collections.abc import Callable
from fractions import Fraction

from slime_reward_math.read.loaded import changes_ahead, changes_behind, counts, counts_things, names_value
from slime_reward_math.read.names import PARTS, SCALES, VOCABULARY, counted
from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words, number
from slime_reward_math.value.units import measure

Change = Callable[[Tree], Tree]

MAX_CHANGES = 6
"""Maximum operations in words on one value; further words count as not understood."""
MAX_SPOKEN = 12
"""Maximum words of a number; longer texts are language."""
_ARTICLES = frozenset({"a", "an", "the"})
_SHARED = frozenset({"answer", "value", "number", "sum", "product", "result", "original", "previous", "first", "total"})
"""Words for the whole of a fraction, not for counted things: `half of the sum`."""
_SILENT = frozenset({"a", "an", "the", "exactly", "only", "just", "precisely", "simply", "equal", "equals", "to", "of"})
_QUANTIFIED = frozenset({"all", "any", "every", "if", "for all", "for any", "for every"})
"""Words that may precede an inequality: `all n >= 3`."""
_INFINITE = Sym("inf")


def said(words: str, value: Tree) -> Tree:
    """A value with words that are not understood."""
    return Node("said", (Words(words), value))


def spoken(words: str) -> Tree | None:
    """The number that words express, with operations: `minus three`, `two thirds`, `twice five`; else None."""
    parts = words.split()
    if len(parts) > MAX_SPOKEN or VOCABULARY.isdisjoint(parts):
        return None
    cut = next((place for place in range(1, len(parts)) if " ".join(parts[place:]) in _BEHIND), len(parts))
    for start, stop in ((at, end) for end in dict.fromkeys((len(parts), cut)) for at in range(end)):
        found: Tree | None = counted(parts[start:stop])
        if found is None:
            continue
        if stop < len(parts):
            found = behind(found, " ".join(parts[stop:]))
        before = parts[:start]
        if before and not set(before) <= _ARTICLES:
            found = ahead(" ".join(before), found)
            if isinstance(found, Node) and found.head == "label" and before[-1] not in ("is", "are", "equals"):
                return None
        return None if isinstance(found, Node) and found.head in ("said", "noted") else found
    return _of_things([each for each in parts if each != "exactly"])


def _of_things(parts: list[str]) -> Tree | None:
    """`three days`, `twenty five percent`: a number in words with its unit; None for anything else."""
    for stop in range(len(parts) - 1, 0, -1):
        value = counted(parts[:stop])
        if value is None:
            continue
        rest = " ".join(parts[stop:])
        if value.value < 1 and parts[stop : stop + 2] == ["of", "the"] and _SHARED.isdisjoint(parts[stop + 2 :]):
            return Node("unit", (value, Words(rest)))
        if parts[stop] in ("and", "of", "or", "more", "less", "fewer", "point", "way", "per") and rest != "of them":
            return None
        if value.value.denominator > 1 and measure(rest) is None and parts[stop] not in ("percent", "degrees"):
            return None
        found = behind(value, rest)
        return None if isinstance(found, Node) and found.head in ("said", "noted") else found
    return None


def ahead(words: str, value: Tree, grouped: bool = False) -> Tree:
    """A value with the words before it, which change or name it.

    Args:
        words: the words before the value.
        value: the value behind them.
        grouped: whether it is in brackets; without them, half of a sum is ambiguous.
    """
    parts, found = words.split(), value
    for _ in range(MAX_CHANGES):
        if not parts:
            break
        change, taken = _change(parts)
        if change is None:
            if parts[-1] not in _SILENT or not any(_change(parts[:-1])[1:]):
                break
            taken = 1
        elif (changed := change(found) if grouped and _is_sum(found) else _changed(change, found)) is None:
            return said(words, value)
        else:
            found = changed
        parts = parts[:-taken]
    rest = " ".join(parts)
    unit = value.args[1] if isinstance(value, Node) and value.head == "unit" else None
    if isinstance(unit, Words) and counts(rest, unit.text):
        return said(words, value)
    if changes_ahead(rest) and not (isinstance(value, Rel) and rest in _QUANTIFIED):
        return said(words, value)
    if found is value:
        return Node("label" if names_value(words, value) else "noted", (Words(words), value))
    return found if _SILENT.issuperset(parts) else Node("label", (Words(rest), found))


def _change(parts: list[str]) -> tuple[Change | None, int]:
    for count in range(min(len(parts), 5), 1, -1):
        *first, last = parts[-count:]
        if last in ("of", "times"):
            value = counted(first)
            whole = isinstance(value, Num) and value.value.denominator == 1
            if value is not None and whole == (last == "times"):
                return _times(value.value), count
        if count > 2 and last == "than" and first[-1] in ("more", "less", "greater", "fewer"):
            value = counted(first[:-1])
            if value is not None:
                return _plus(value.value if first[-1] in ("more", "greater") else -value.value), count
    for count in range(min(len(parts), 4), 0, -1):
        change = _AHEAD.get(" ".join(parts[-count:]))
        if change is not None:
            return change, count
    return None, 0


def _changed(change: Change, tree: Tree) -> Tree | None:
    """A value changed, its unit or condition left behind it; None for what is not a single value."""
    if isinstance(tree, Node) and tree.head in ("unit", "given") and len(tree.args) > 1:
        inner = _changed(change, tree.args[0])
        return None if inner is None else Node(tree.head, (inner, *tree.args[1:]))
    return (
        None if isinstance(tree, Rel | Words) or (isinstance(tree, Node) and tree.head in _NO_VALUES) else change(tree)
    )


_NO_VALUES = frozenset({
    "list", "and", "or", "()", "[]", "(]", "[)", "set", "union", "meet", "minus", "such", "matrix", "cases", "label",
    "said", "noted", "ratio", "pm", "mp", "+", "residue", "row",
})  # fmt: skip


def behind(value: Tree, words: str) -> Tree:
    """A value with the words behind it, which change it or give its unit or kind."""
    text, found = words, value
    for _ in range(MAX_CHANGES):
        known = text.partition(" ")[0] in _FIRST
        word = next((each for each in _LONGEST if f"{text} ".startswith(f"{each} ")), None) if known else None
        if word is None or (word in ("squared", "cubed") and text != word and not _goes_on(text)):
            break
        changed = None if _is_composed(found) else _changed(_BEHIND[word], found)
        if changed is None:
            return said(words, value)
        found, text = changed, text.removeprefix(word).strip()
    if not text:
        return found
    if changes_behind(text) and measure(text) is None:
        return said(words, value)
    if not counts_things(text, found):
        return Node("noted", (Words(words), value))
    return Node("unit", (found, Words(text)))


def _is_sum(tree: Tree) -> bool:
    return isinstance(tree, Node) and tree.head == "+"


def _goes_on(text: str) -> bool:
    return text.split()[1] in _BEHIND or text.split()[1] in ("is", "or")


def _is_composed(tree: Tree) -> bool:
    """Whether a word behind the tree is ambiguous: about all of it, or about its last part."""
    return (isinstance(tree, Num) and tree.value < 0) or (
        isinstance(tree, Node) and tree.head in ("/", "*", "neg", "percent", "deg")
    )


def compared(value: Tree, words: str) -> Tree | None:
    """The set that `5 or more` and `5 and up` mean, for the words behind `or` and `and`; None for anything else."""
    change = _OR_MORE.get(words)
    return None if change is None else _changed(change, value)


def _at_least(tree: Tree) -> Tree:
    return Node("[)", (tree, _INFINITE))


def _at_most(tree: Tree) -> Tree:
    return Node("(]", (Node("neg", (_INFINITE,)), tree))


def _more_than(tree: Tree) -> Tree:
    return Node("()", (tree, _INFINITE))


def _less_than(tree: Tree) -> Tree:
    return Node("()", (Node("neg", (_INFINITE,)), tree))


def _power(exponent: int) -> Change:
    return lambda tree: Node("^", (tree, number(exponent)))


def _root(degree: int) -> Change:
    return lambda tree: Node("root", (tree, number(degree)))


def _times(factor: Fraction | int) -> Change:
    return lambda tree: Node("*", (Num(Fraction(factor)), tree))


def _plus(summand: Fraction) -> Change:
    return lambda tree: Node("+", (tree, Num(summand)))


def _applied(head: str) -> Change:
    return lambda tree: Node(head, (tree,))


def _same(tree: Tree) -> Tree:
    return tree


def _inverse(tree: Tree) -> Tree:
    return Node("/", (number(1), tree))


def _negative(tree: Tree) -> Tree:
    return Num(-tree.value, tree.places, tree.digits) if isinstance(tree, Num) else Node("neg", (tree,))


_NO_MORE = [
    "at most", "at the most", "at the very most", "no more than", "not more than", "up to", "not exceeding",
    "no greater than", "not greater than", "no larger than", "not larger than", "less than or equal to",
    "cannot exceed",
]  # fmt: skip
_NO_LESS = [
    "at least", "at the least", "at the very least", "no less than", "not less than", "no fewer than",
    "not fewer than", "greater than or equal to", "no smaller than", "not smaller than",
]  # fmt: skip
_AHEAD: dict[str, Change] = {
    **dict.fromkeys(
        ("negative", "minus", "opposite of", "negative of", "negation of", "additive inverse of"), _negative
    ),
    **dict.fromkeys(("positive", "plus"), _same),
    **dict.fromkeys(("twice", "double", "two times", "doubled"), _times(2)),
    **dict.fromkeys(("thrice", "triple"), _times(3)),
    "quadruple": _times(4),
    **dict.fromkeys(("half", "half of", "half the"), _times(Fraction(1, 2))),
    **dict.fromkeys(("square root of", "root of", "sqrt of"), _root(2)),
    "cube root of": _root(3),
    "fourth root of": _root(4),
    "square of": _power(2),
    "cube of": _power(3),
    **dict.fromkeys(("reciprocal of", "multiplicative inverse of", "one over", "1 over"), _inverse),
    **dict.fromkeys(("absolute value of", "modulus of"), _applied("abs")),
    "factorial of": _applied("factorial"),
    **dict.fromkeys(_NO_MORE, _at_most),
    **dict.fromkeys(_NO_LESS, _at_least),
    **dict.fromkeys(
        ("less than", "fewer than", "smaller than", "lower than", "below", "strictly less than"), _less_than
    ),
    **dict.fromkeys(("more than", "greater than", "larger than", "higher than", "above", "exceeding"), _more_than),
}
NO_VALUE_NAMES = frozenset(
    {*_NO_MORE, *_NO_LESS, "less than", "fewer than", "more than", "greater than", "below", "above"}
)
"""Words that name no value, even before a colon: `At most: 5`."""
_BEHIND: dict[str, Change] = {
    "squared": _power(2), "cubed": _power(3), "factorial": _applied("factorial"), "tens": _times(10),
    **{word: _times(Fraction(1, below)) for word, below in PARTS.items()},
    **{word: _times(factor) for word, factor in SCALES.items()},
    **{f"{word}s": _times(factor) for word, factor in SCALES.items()},
    **dict.fromkeys(("at most", "at the most", "at the very most", "at maximum"), _at_most),
    **dict.fromkeys(("at least", "at the least", "at the very least", "at minimum"), _at_least),
}  # fmt: skip
INFIX = {
    **dict.fromkeys(("plus", "added to", "more than"), "+"), "minus": "-",
    **dict.fromkeys(("times", "multiplied by"), "*"), **dict.fromkeys(("over", "divided by"), "/"),
    **dict.fromkeys(("to the power of", "to the power", "raised to the power of", "raised to"), "^"),
    "choose": "binom", **dict.fromkeys(("mod", "modulo"), "residue"),
    **dict.fromkeys(("less than", "fewer than", "subtracted from"), "from"),
    **dict.fromkeys(("percent of", "% of"), "percent"), **dict.fromkeys(("halves of", "half of"), "half"),
}  # fmt: skip
"""Words between two values, with the operation that they mean."""


def operation(infix: str, left: Tree, right: Tree) -> Tree:
    """The result of words between two values."""
    if infix == "from":
        return Node("+", (right, _negative(left)))
    if infix == "-":
        return Node("+", (left, _negative(right)))
    if infix in ("percent", "half"):
        return Node("*", (Node("/", (left, number(100 if infix == "percent" else 2))), right))
    reduced = isinstance(left, Num) and isinstance(right, Num) and abs(left.value) < right.value
    if infix == "residue" and not reduced:
        # `7 mod 2` is an operation; `1 mod 2` is a residue class.
        return Node("mod", (left, right))
    return Node(infix, (left, right))


_LONGEST = sorted(_BEHIND, key=len, reverse=True)
_FIRST = frozenset(words.partition(" ")[0] for words in _BEHIND)
_OR_MORE: dict[str, Change] = {
    **dict.fromkeys(("more", "greater", "larger", "higher", "above", "up", "over", "upwards", "beyond"), _at_least),
    **dict.fromkeys(("less", "fewer", "smaller", "lower", "below", "under", "down"), _at_most),
}  # fmt: skip
