r"""Algebra: whether two trees are equal, by sympy; runs in a child process alone.

Example:

    equal(read(r"\sum_{k=1}^{\infty} 2^{-k}"), read("1"))      # True

Trees become sympy's objects one by one; nothing is parsed, and what has no rule is a function that nobody defined.
"""

from collections.abc import Callable

import sympy as sp

from slime_reward_math.tree import Node, Num, Rel, Sym, Tree, Words
from slime_reward_math.value.same import COUNTS, SIGNED

MAX_FACTORIAL = 3_000
MAX_EXPONENT = 20_000


class NoRule(Exception):
    """The tree holds what is not an expression, or what would not be computed in any time."""


def equal(left: Tree, right: Tree) -> bool | None:
    """Whether two expressions are equal; None if sympy cannot tell either.

    Counts (`n`, `k`) are positive integers, `x` and its like real, other variables positive: what the numeric tier
    looks at too.
    """
    try:
        one, two = (expression(each).doit() for each in (left, right))
    except NoRule:
        return None
    if one == two:
        return True
    if any(each.has(sp.nan, sp.zoo) or _is_open(each) for each in (one, two)):
        return None
    if one.is_infinite or two.is_infinite:
        return False if one.is_finite or two.is_finite else None
    difference = sp.simplify(one - two)
    if difference == 0:
        return True
    found = difference.equals(0)
    return bool(found) if found is not None else None


def _is_open(found: sp.Basic) -> bool:
    return bool(found.has(sp.Sum, sp.Product, sp.Integral, sp.Limit, sp.Derivative))


def expression(tree: Tree) -> sp.Expr:
    """A tree as sympy's object.

    Raises:
        NoRule: it is not an expression, or too large a one.
    """
    if isinstance(tree, Num):
        return sp.Rational(tree.value.numerator, tree.value.denominator)
    if isinstance(tree, Sym):
        return _symbol(tree.name)
    if isinstance(tree, Words | Rel):
        raise NoRule
    special = _SPECIAL.get(tree.head)
    if special is not None:
        return special(tree.args)
    arguments = [expression(each) for each in tree.args]
    rule = _RULES.get(tree.head)
    if rule is not None:
        return rule(*arguments)
    if tree.head.startswith("call:"):
        return sp.Function(tree.head[5:].strip() or "f")(*arguments)
    raise NoRule


def _symbol(name: str) -> sp.Expr:
    constants = {"pi": sp.pi, "e": sp.E, "i": sp.I, "inf": sp.oo}
    if name in constants:
        return constants[name]
    if name in COUNTS or name.startswith("#"):
        return sp.Symbol(name, integer=True, positive=True)
    return sp.Symbol(name, real=True) if name in SIGNED else sp.Symbol(name, positive=True)


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    if exponent.is_Number and abs(exponent) > MAX_EXPONENT:
        raise NoRule
    return base**exponent


def _factorial(argument: sp.Expr) -> sp.Expr:
    if argument.is_Number and abs(argument) > MAX_FACTORIAL:
        raise NoRule
    return sp.factorial(argument)


def _binomial(above: sp.Expr, below: sp.Expr) -> sp.Expr:
    if any(each.is_Number and abs(each) > MAX_FACTORIAL for each in (above, below)):
        raise NoRule
    return sp.binomial(above, below)


def _log(argument: sp.Expr, base: sp.Expr = sp.E) -> sp.Expr:
    return sp.log(argument) / sp.log(base)


def _series(args: tuple[Tree, ...], kind: type[sp.Expr]) -> sp.Expr:
    body, variable, low, high = args
    index = sp.Symbol("index", integer=True)
    outside = expression(variable)
    return kind(expression(body).subs(outside, index), (index, expression(low), expression(high)))


def _integral(args: tuple[Tree, ...]) -> sp.Expr:
    if len(args) not in (2, 4):
        raise NoRule
    variable = expression(args[1])
    bounds = (variable, *map(expression, args[2:])) if len(args) == 4 else variable
    return sp.Integral(expression(args[0]), bounds)


def _limit(args: tuple[Tree, ...]) -> sp.Expr:
    where = args[1] if len(args) == 2 else None
    if not (isinstance(where, Rel) and len(where.terms) == 2):
        raise NoRule
    variable, point = where.terms
    side = "+-"
    if isinstance(point, Node) and point.head == "^" and point.args[1] in (Sym("+"), Sym("-")):
        side = "+" if point.args[1] == Sym("+") else "-"
        point = point.args[0]
    place = expression(point)
    return sp.Limit(expression(args[0]), expression(variable), place, side if place.is_finite else "+")


def _derivative(args: tuple[Tree, ...]) -> sp.Expr:
    body, variable = expression(args[0]), expression(args[1])
    if not body.has(variable):
        # `dy/dx` is the slope of a curve that nobody told, and not zero.
        raise NoRule
    return sp.Derivative(body, variable)


_SPECIAL: dict[str, Callable[[tuple[Tree, ...]], sp.Expr]] = {
    "sum": lambda args: _series(args, sp.Sum), "prod": lambda args: _series(args, sp.Product), "call:int": _integral,
    "call:lim": _limit, "call:derivative": _derivative,
}  # fmt: skip
_RULES: dict[str, Callable[..., sp.Expr]] = {
    "+": sp.Add, "*": sp.Mul, "/": lambda above, below: above / below, "neg": lambda argument: -argument,
    "^": _power,
    "root": lambda radicand, degree: sp.real_root(radicand, degree) if degree != 2 else sp.sqrt(radicand),
    "log": _log, "exp": sp.exp, "abs": sp.Abs, "whole": lambda argument: argument, "floor": sp.floor,
    "ceil": sp.ceiling, "sgn": sp.sign, "max": sp.Max, "min": sp.Min, "gcd": sp.gcd, "lcm": sp.lcm, "mod": sp.Mod,
    "factorial": _factorial, "binom": _binomial, "deg": lambda argument: argument * sp.pi / 180,
    "percent": lambda argument: argument / 100, "ratio": lambda above, below: above / below,
    **{name: getattr(sp, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth")},
    **{f"arc{name}": getattr(sp, f"a{name}") for name in "sin cos tan cot sec csc sinh cosh tanh".split()},  # noqa: SIM905
}  # fmt: skip
