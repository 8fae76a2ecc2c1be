r"""Classes of answers: what form a gold answer has, so that misses can be counted by it.

Example:

    class_of(r"(-\infty, 3)")      # "interval or set"
"""

from collections import Counter
from collections.abc import Callable, Sequence

from cases import Case

from slime_reward_math.read import Grouping, Unread, clean, read
from slime_reward_math.tree import Node, Num, Rel, Tree, Words, symbols

_SETS = frozenset({"[]", "(]", "[)", "set", "union", "meet", "minus", "such"})


def class_of(gold: str) -> str:
    """The form of a gold answer in a few words."""
    try:
        return _class(read(clean(gold), Grouping.OUTSIDE))
    except Unread:
        return "not read"


def _class(tree: Tree) -> str:
    if isinstance(tree, Num):
        return "number"
    if isinstance(tree, Words) or (isinstance(tree, Node) and tree.head == "label"):
        return "words and labels"
    if isinstance(tree, Rel):
        return "equation" if tree.ops[0] in ("=", "~") else "inequality and other relation"
    if isinstance(tree, Node):
        names = {"unit": "quantity", "percent": "quantity", "deg": "quantity", "ratio": "ratio", "()": "tuple"}
        names |= {"matrix": "matrix", "cases": "case distinction", "given": "answer with a condition"}
        names |= dict.fromkeys(("list", "and", "or"), "list") | dict.fromkeys(_SETS, "interval or set")
        if tree.head in names:
            return names[tree.head]
    return "expression with variables" if symbols(tree) else "constant"


def misses(cases: Sequence[Case], is_paid: Callable[[Case], bool]) -> dict[str, tuple[int, int, int]]:
    """Cases, false negatives and false positives of each class, the most missed first."""
    count, missed, paid = Counter[str](), Counter[str](), Counter[str]()
    for case in cases:
        name = class_of(case.gold)
        count[name] += 1
        verdict = is_paid(case)
        missed[name] += case.expected and not verdict
        paid[name] += verdict and not case.expected
    return {name: (count[name], missed[name], paid[name]) for name in sorted(count, key=lambda name: -missed[name])}
