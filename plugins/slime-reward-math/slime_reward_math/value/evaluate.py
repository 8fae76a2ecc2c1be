r"""Evaluates a tree: exact fractions while they last, then balls of a field; every step is bounded.

Example:

    with field(128) as numbers:
        Evaluation(numbers, {"x": Fraction(3)}).value(tree)
    approximate(read(r"\sqrt{2}"))      # 1.4142135623730951

Powers, factorials, binomials and sums are guarded before they are computed.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction

from slime_reward_math.tree import CONSTANTS, Node, Num, Rel, Sym, Tree, Words, listed, symbols
from slime_reward_math.value.field import EXACT, Ball, Field, Value, field
from slime_reward_math.value.outcomes import Beyond, Imprecise, NeedsBalls, TooBig, Undefined


def fraction_of(name: str) -> Fraction:
    """A rational between 1 and 2 that belongs to a name, the same in every process."""
    return 1 + Fraction(zlib.crc32(name.encode("utf-8", "replace")) % 99_991, 99_991)


def exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational root of a positive rational; None if it is irrational or the degree is large."""
    if degree > 64:
        return None
    above, below = _integer_root(base.numerator, degree), _integer_root(base.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(number: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(number)
        return root if root * root == number else None
    if number.bit_length() > 900:
        return None
    guess = round(number ** (1 / degree))
    return next((each for each in (guess - 1, guess, guess + 1) if each >= 0 and each**degree == number), None)


MAX_BITS = 40_000
"""Maximum bits of an exact numerator or denominator; larger values become balls."""
MAX_FACTORIAL = 2_500
"""Largest n whose n! is computed exactly (24,800 bits)."""
MAX_TERMS = 200
"""Maximum terms of a sum or product with an index."""
MAX_NODES = 2_500
"""Maximum nodes evaluated for one value."""
ONE = Fraction(1)


class Evaluation:
    """One evaluation at one point."""

    def __init__(self, field: Field, point: Mapping[str, Fraction], common_log: bool = False) -> None:
        self._field = field
        self._point = dict(point)
        self._common_log = common_log
        self._nodes = 0

    def value(self, tree: Tree) -> Value:
        """The tree's value at the point.

        Raises:
            Undefined, Imprecise, TooBig, Beyond: see `value.field`.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Beyond("too many operations")
        if isinstance(tree, Num):
            return tree.value
        if isinstance(tree, Sym):
            return self._symbol(tree.name)
        if isinstance(tree, Node):
            rule = _RULES.get(tree.head)
            if rule is not None:
                return rule(self, tree.args)
            return self._opaque(tree.head, tree.args)
        raise Beyond("words or relations within a value")

    def ball(self, value: Value) -> Ball:
        """A value as a ball."""
        return self._field.ball(value) if isinstance(value, Fraction) else value

    def _symbol(self, name: str) -> Value:
        if name in self._point:
            return self._point[name]
        if name in ("pi", "e", "i"):
            return self._field.constant(name)
        if name in CONSTANTS:
            raise Undefined
        raise Beyond("no value for a symbol")

    def _sum(self, args: tuple[Tree, ...]) -> Value:
        total = self.value(args[0])
        for each in args[1:]:
            total = self._add(total, self.value(each))
        return total

    def _add(self, left: Value, right: Value) -> Value:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._checked(left + right)
        return self.ball(left) + self.ball(right)

    def _product(self, args: tuple[Tree, ...]) -> Value:
        total = self.value(args[0])
        for each in args[1:]:
            total = self._multiply(total, self.value(each))
        return total

    def _multiply(self, left: Value, right: Value) -> Value:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return self._checked(left * right)
        if left == 0 or right == 0:
            return Fraction(0)
        return self.ball(left) * self.ball(right)

    def _quotient(self, args: tuple[Tree, ...]) -> Value:
        above, below = self.value(args[0]), self.value(args[1])
        return self._divide(above, below)

    def _divide(self, above: Value, below: Value) -> Value:
        if isinstance(below, Fraction):
            if not below:
                raise Undefined
            if isinstance(above, Fraction):
                return self._checked(above / below)
        return self._field.divide(self.ball(above), self.ball(below))

    def _checked(self, value: Fraction) -> Value:
        if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
            return self._field.ball(value)
        return value

    def _power(self, args: tuple[Tree, ...]) -> Value:
        if args[0] == Sym("e"):
            return self._exponential(args[1:])
        return self.power(self.value(args[0]), self.value(args[1]))

    def power(self, base: Value, exponent: Value) -> Value:
        """A power: exact where it stays small; the real root of a negative number where there is one."""
        if isinstance(exponent, Fraction):
            if exponent.denominator == 1:
                return self._integer_power(base, exponent.numerator)
            if isinstance(base, Fraction):
                return self._fractional_power(base, exponent)
            if exponent.denominator % 2 and self._is_negative(base):
                root = self._field.power(-self.ball(base), self._field.ball(exponent))
                return -root if exponent.numerator % 2 else root
        if base == 0:
            raise Undefined
        if base == 1:
            return ONE
        return self._field.power(self.ball(base), self.ball(exponent))

    def _is_negative(self, base: Value) -> bool:
        try:
            return self._sign(base) < 0
        except (Undefined, Imprecise):
            return False

    def _integer_power(self, base: Value, exponent: int) -> Value:
        if isinstance(base, Fraction):
            if not base and exponent <= 0:
                if exponent == 0:
                    return ONE
                raise Undefined
            if abs(base) == 1:
                return base if exponent % 2 else ONE
            bits = base.numerator.bit_length() + base.denominator.bit_length()
            if bits * abs(exponent) <= MAX_BITS:
                return base**exponent
        return self._field.integer_power(self.ball(base), exponent)

    def _fractional_power(self, base: Fraction, exponent: Fraction) -> Value:
        if not base:
            if exponent > 0:
                return base
            raise Undefined
        degree = exponent.denominator
        negative = base < 0 and degree % 2 == 1
        root = exact_root(abs(base) if negative else base, degree) if base > 0 or negative else None
        if root is not None:
            return self._integer_power(-root if negative else root, exponent.numerator)
        if negative:
            value = self._field.power(self._field.ball(-base), self._field.ball(exponent))
            return -value if exponent.numerator % 2 else value
        if exponent == Fraction(1, 2):
            return self._field.function("sqrt", self._field.ball(base))
        return self._field.power(self._field.ball(base), self._field.ball(exponent))

    def _root(self, args: tuple[Tree, ...]) -> Value:
        degree = self.value(args[1])
        if degree == 2:
            radicand = self.value(args[0])
            if isinstance(radicand, Fraction):
                return self._fractional_power(radicand, Fraction(1, 2))
            return self._field.function("sqrt", radicand)
        return self.power(self.value(args[0]), self._divide(ONE, degree))

    def _exponential(self, args: tuple[Tree, ...]) -> Value:
        exponent = self.value(args[0])
        return ONE if exponent == 0 else self._field.function("exp", self.ball(exponent))

    def _log(self, args: tuple[Tree, ...]) -> Value:
        argument = self.value(args[0])
        if argument == 1:
            return Fraction(0)
        if argument == 0:
            raise Undefined
        natural = self._field.function("ln", self.ball(argument))
        base: Tree | None = args[1] if len(args) > 1 else None
        if base is None and not self._common_log:
            return natural
        if base == Sym("e"):
            return natural
        below = Fraction(10) if base is None else self.value(base)
        if below in (0, 1):
            raise Undefined
        return self._field.divide(natural, self._field.function("ln", self.ball(below)))

    def _abs(self, args: tuple[Tree, ...]) -> Value:
        value = self.value(args[0])
        return abs(value) if isinstance(value, Fraction) else self._field.function("abs", value)

    def _floor(self, args: tuple[Tree, ...]) -> Value:
        value = self.value(args[0])
        return Fraction(math.floor(value) if isinstance(value, Fraction) else self._field.floor(value))

    def _ceil(self, args: tuple[Tree, ...]) -> Value:
        value = self.value(args[0])
        return Fraction(math.ceil(value) if isinstance(value, Fraction) else -self._field.floor(-value))

    def _sign(self, value: Value) -> int:
        if isinstance(value, Fraction):
            return (value > 0) - (value < 0)
        return self._field.sign(value)

    def _largest(self, args: tuple[Tree, ...], wanted: int = 1) -> Value:
        best = self.value(args[0])
        for each in args[1:]:
            value = self.value(each)
            if self._sign(self._add(value, -best)) == wanted:
                best = value
        return best

    def _integers(self, args: tuple[Tree, ...]) -> list[int]:
        values = [self.value(each) for each in args]
        if not all(isinstance(each, Fraction) and each.denominator == 1 for each in values):
            raise Beyond("integers alone have this")
        return [each.numerator for each in values if isinstance(each, Fraction)]

    def _mod(self, args: tuple[Tree, ...]) -> Value:
        left, right = self._integers(args)
        if not right:
            raise Undefined
        return Fraction(left % right)

    def _gamma_plus_one(self, value: Value) -> Value:
        if isinstance(value, Fraction) and value.denominator == 1:
            if value < 0:
                raise Undefined
            if value <= MAX_FACTORIAL:
                return Fraction(math.factorial(value.numerator))
        return self._field.function("gamma", self.ball(self._add(value, ONE)))

    def _factorial2(self, args: tuple[Tree, ...]) -> Value:
        (number,) = self._integers(args)
        if number < -1:
            raise Undefined
        if number > MAX_FACTORIAL:
            raise Beyond("a double factorial of a large number")
        return Fraction(math.prod(range(number, 0, -2)))

    def _binomial(self, args: tuple[Tree, ...]) -> Value:
        above, below = self.value(args[0]), self.value(args[1])
        if isinstance(above, Fraction) and isinstance(below, Fraction) and below.denominator == 1:
            if below < 0:
                return Fraction(0)
            if above.denominator == 1 and 0 <= above <= MAX_FACTORIAL:
                return Fraction(math.comb(above.numerator, below.numerator)) if below <= above else Fraction(0)
        rest = self._add(above, -below)
        top = self._field.function("gamma", self.ball(self._add(above, ONE)))
        for each in (below, rest):
            top = top * self._field.function("rgamma", self.ball(self._add(each, ONE)))
        return top

    def _degrees(self, args: tuple[Tree, ...]) -> Value:
        return self._multiply(self._divide(self.value(args[0]), Fraction(180)), self._field.constant("pi"))

    def _ratio(self, args: tuple[Tree, ...]) -> Value:
        if len(args) != 2:
            return self._opaque("ratio", args)
        return self._quotient(args)

    def _based(self, args: tuple[Tree, ...]) -> Value:
        digits, base = self._integers(args)
        text = str(digits)
        if not (2 <= base <= 10 and all(int(each) < base for each in text)):
            raise Undefined
        return Fraction(int(text, base))

    def _series(self, args: tuple[Tree, ...], product: bool = False) -> Value:
        body, variable, low, high = args
        if not isinstance(variable, Sym):
            raise Beyond("a sum over no variable")
        if Sym("inf") in (low, high):
            return self._opaque("call:product" if product else "call:series", (body, low, high))
        first, last = self._integers((low, high))
        if last - first >= MAX_TERMS:
            raise Beyond("a sum with too many terms")
        before = self._point.get(variable.name)
        total: Value = ONE if product else Fraction(0)
        for index in range(first, last + 1):
            self._point[variable.name] = Fraction(index)
            value = self.value(body)
            total = self._multiply(total, value) if product else self._add(total, value)
        if before is None:
            self._point.pop(variable.name, None)
        else:
            self._point[variable.name] = before
        return total

    def _opaque(self, head: str, args: tuple[Tree, ...]) -> Value:
        """An undefined function, replaced by a fixed one for its name, so that equal arguments give equal values."""
        if head in _ELEMENTARY:
            return self._elementary(head, args)
        if not head.startswith("call:") and head not in ("ratio", "residue"):
            raise Beyond(f"no rule for {head}")
        total = self._field.ball(fraction_of(head))
        for place, each in enumerate(args):
            argument = self._inner(each)
            weight = fraction_of(f"{head}/{place}")
            angle = argument * self._field.ball(weight)
            # Quadratic and periodic in each argument: different arguments practically never give equal values.
            total = total + self._field.function("sin", angle) + argument * argument * self._field.ball(weight + 2)
        return total

    def _inner(self, tree: Tree) -> Ball:
        if isinstance(tree, Words):
            return self._field.ball(fraction_of(tree.text))
        if isinstance(tree, Sym) and tree.name not in self._point and tree.name not in ("pi", "e", "i"):
            return self._field.ball(fraction_of("#" + tree.name))
        if isinstance(tree, Rel):
            return self.ball(self._opaque("call:" + "".join(tree.ops), tree.terms))
        if isinstance(tree, Node) and tree.head not in _VALUED and not tree.head.startswith("call:"):
            return self.ball(self._opaque("call:" + tree.head, tree.args))
        return self.ball(self.value(tree))

    def _elementary(self, head: str, args: tuple[Tree, ...]) -> Value:
        argument = self.value(args[0])
        if head in ("arccot", "arcsec", "arccsc", "arccoth", "arcsech", "arccsch"):
            argument, head = self._divide(ONE, argument), head.replace("cot", "tan").replace("sec", "cos")
            head = head.replace("csc", "sin").replace("csch", "sinh").replace("sech", "cosh")
        if argument == 0 and head in ("sin", "tan", "sinh", "tanh", "arcsin", "arctan"):
            return Fraction(0)
        return self._field.function(head, self.ball(argument))


_ELEMENTARY = listed(
    """sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh
    arctanh"""
)
_RULES: dict[str, Callable[[Evaluation, tuple[Tree, ...]], Value]] = {
    "+": Evaluation._sum, "*": Evaluation._product, "/": Evaluation._quotient,
    "neg": lambda at, args: -at.value(args[0]), "^": Evaluation._power, "root": Evaluation._root,
    "exp": Evaluation._exponential, "log": Evaluation._log, "abs": Evaluation._abs, "floor": Evaluation._floor,
    "ceil": Evaluation._ceil, "whole": lambda at, args: at.value(args[0]),
    "dots": lambda at, args: at.value(args[0]), "sgn": lambda at, args: Fraction(at._sign(at.value(args[0]))),
    "max": Evaluation._largest, "min": lambda at, args: at._largest(args, -1),
    "gcd": lambda at, args: Fraction(math.gcd(*at._integers(args))),
    "lcm": lambda at, args: Fraction(math.lcm(*at._integers(args))), "mod": Evaluation._mod,
    "factorial": lambda at, args: at._gamma_plus_one(at.value(args[0])), "factorial2": Evaluation._factorial2,
    "binom": Evaluation._binomial, "deg": Evaluation._degrees,
    "percent": lambda at, args: at._divide(at.value(args[0]), Fraction(100)),
    "unit": lambda at, args: at.value(args[0]), "ratio": Evaluation._ratio, "base": Evaluation._based,
    "sum": Evaluation._series, "prod": lambda at, args: at._series(args, product=True),
}  # fmt: skip
_VALUED = _RULES.keys() | _ELEMENTARY


def approximate(tree: Tree, bits: int = 128) -> float | None:
    """The real value of a constant as a float; None if it has none, or none that is real and fits."""
    if isinstance(tree, Num):
        return _float(tree.value)
    if symbols(tree):
        return None
    for precision in (EXACT, bits):
        try:
            with field(precision) as numbers:
                value = Evaluation(numbers, {}).value(tree)
                if isinstance(value, Fraction):
                    return _float(value)
                return numbers.approximate(value) if numbers.is_real(value) else None
        except NeedsBalls:
            continue
        except (Undefined, Imprecise, TooBig, Beyond):
            return None
    return None


def exactly(tree: Tree) -> Fraction | None:
    """The rational value of a constant; None if it has none or is irrational."""
    if isinstance(tree, Num):
        return tree.value
    if symbols(tree):
        return None
    try:
        with field(EXACT) as numbers:
            value = Evaluation(numbers, {}).value(tree)
    except (NeedsBalls, Undefined, Imprecise, TooBig, Beyond):
        return None
    return value if isinstance(value, Fraction) else None


def _float(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
