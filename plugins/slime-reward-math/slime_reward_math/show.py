r"""Shows trees: the normal form of an answer, for people and logs.

Example:

    show(read(r"\frac12x"))      # "(1/2)*x"
"""

from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words

MAX_SHOWN = 500
"""Characters; a normal form is for reading."""
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
