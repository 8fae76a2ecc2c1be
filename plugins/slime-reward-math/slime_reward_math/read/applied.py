r"""Applied: a function's name, its base and its arguments as a tree: logarithms, roots, `cis`.

Example:

    applied("log", number(2), (Sym("x"),))      # the logarithm of x to base 2
"""

from slime_reward_math.tree import Node, Sym, Tree, number


def applied(name: str, base: Tree | None, arguments: tuple[Tree, ...]) -> Tree:
    """The value of a function, by its name as `FUNCTIONS` has it."""
    if name in ("log", "lg", "lb", "ln"):
        if len(arguments) == 2 and base is None:
            first, base = arguments
            arguments = (first,)
        if base is None:
            known: dict[str, Tree] = {"lg": number(10), "lb": number(2), "ln": Sym("e")}
            base = known.get(name)
        return Node("log", arguments if base is None else (*arguments, base))
    if name == "cis":
        return Node("+", (Node("cos", arguments), Node("*", (Sym("i"), Node("sin", arguments)))))
    if name in ("sqrt", "cbrt"):
        return Node("root", (arguments[0], number(2 if name == "sqrt" else 3)))
    if base is not None:
        return Node(f"call:{name}", (*arguments, base))
    if name in ("det", "dim", "tr", "rank", "arg", "sup", "zeta", "erf", "erfc", "Re", "Im"):
        return Node(f"call:{name}", arguments)
    if name == "deg" or (name not in ("max", "min", "gcd", "lcm") and len(arguments) != 1):
        return Node(f"call:{name}", arguments)
    return Node(name, arguments)


def is_function(tree: Tree) -> bool:
    """Whether a tree names a function: `f(x)`, or one of the letters that do so alone."""
    return (isinstance(tree, Node) and tree.head.startswith("call:")) or tree in (Sym("f"), Sym("g"), Sym("h"))
