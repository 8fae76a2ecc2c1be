"""Whether two expressions have the same value: exactly, or at sample points with proof of every difference.

Example:

    same(read("(x+1)^2"), read("x^2+2x+1"))      # True
    settle(read("10^{100000}"), read("10^{100000}+1"))        # False: they leave different remainders

Variables take fixed rational values: letters that mean counts (n, k, m) integers, the others fractions, first positive
ones, then negative ones where the sign matters. One proved difference within the domain decides. For values too large
to write out, residues prove a difference and prime powers prove equality.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from slime_reward_math.tree import CONSTANTS, Node, Num, Tree, names_and_heads, put
from slime_reward_math.value.evaluate import Evaluation, exactly
from slime_reward_math.value.field import EXACT, Ball, Field, Value, field
from slime_reward_math.value.outcomes import Beyond, Imprecise, NeedsBalls, Order, TooBig, Undefined

PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549)
"""Moduli: different values almost never share all remainders; if they do, no equality is concluded."""
MAX_FACTORIAL = 20_000
"""Largest n whose n! is multiplied out modulo a prime."""
MAX_APART = 2_000
"""Maximum difference between the exponents of two terms that are added."""
MAX_TERMS = 20
"""Maximum terms of a sum."""
MAX_TRIAL = 50_000
"""Largest trial divisor."""
MAX_DEPTH = 12
"""Maximum nesting of powers."""

Powers = tuple[tuple[int, "Form"], ...]
"""Bases, mostly primes, with their exponents; sorted."""
Form = tuple[tuple[int, Powers], ...]
"""A sum of products of powers, each with its sign; sorted."""


class _NoRule(Exception):
    """The tree has no residue, or no form."""


def settle(left: Tree, right: Tree) -> bool | None:
    """Whether two constants are equal, with proof; None where there is none."""
    try:
        if any(_residue(left, prime, 0) != _residue(right, prime, 0) for prime in PRIMES):
            return False
    except (_NoRule, ValueError, RecursionError):
        return None
    try:
        return True if _form(left, 0) == _form(right, 0) else None
    except (_NoRule, RecursionError):
        return None


def _residue(tree: Tree, modulus: int, depth: int) -> int:
    """The remainder; for a fraction, the numerator's remainder times the inverse of the denominator."""
    if depth > MAX_DEPTH * 4:
        raise _NoRule
    if isinstance(tree, Num):
        return tree.value.numerator * pow(tree.value.denominator, -1, modulus) % modulus
    if not isinstance(tree, Node):
        raise _NoRule
    if tree.head == "^":
        return _power_residue(tree, modulus, depth)
    if tree.head == "factorial":
        return _factorial_residue(tree, modulus)
    parts = [_residue(each, modulus, depth + 1) for each in tree.args]
    if tree.head == "+":
        return sum(parts) % modulus
    if tree.head == "neg":
        return -parts[0] % modulus
    if tree.head == "*":
        product = 1
        for each in parts:
            product = product * each % modulus
        return product
    if tree.head == "/":
        return parts[0] * pow(parts[1], -1, modulus) % modulus
    raise _NoRule


def _power_residue(tree: Node, modulus: int, depth: int) -> int:
    base, exponent = _residue(tree.args[0], modulus, depth + 1), exactly(tree.args[1])
    if exponent is not None:
        if exponent.denominator != 1:
            raise _NoRule
        return pow(base, exponent.numerator, modulus)
    if not _is_positive(tree.args[1]):
        raise _NoRule
    # Euler: from log2(modulus) on, exponents count modulo phi, even if base and modulus share factors.
    order = _phi(modulus)
    return pow(base, _residue(tree.args[1], order, depth + 1) + order * (32 // order + 1), modulus)


def _is_positive(tree: Tree) -> bool:
    """Whether an exponent that is not a small number is a large positive one: sums, products and powers of such."""
    if isinstance(tree, Num):
        return tree.value > 0 and tree.value.denominator == 1
    return isinstance(tree, Node) and tree.head in ("+", "*", "^", "factorial") and all(map(_is_positive, tree.args))


def _factorial_residue(tree: Node, modulus: int) -> int:
    count = exactly(tree.args[0])
    if count is None or count.denominator != 1 or not 0 <= count <= MAX_FACTORIAL:
        raise _NoRule
    return _factorials(count.numerator, modulus)


@lru_cache(64)
def _factorials(count: int, modulus: int) -> int:
    product = 1
    for factor in range(2, count + 1):
        product = product * factor % modulus
    return product


@lru_cache(16)
def _factorial_powers(count: int) -> Powers:
    sieve = bytearray([1]) * (count + 1)
    found: list[tuple[int, Form]] = []
    for prime in range(2, count + 1):
        if sieve[prime]:
            sieve[prime * prime :: prime] = bytes(len(sieve[prime * prime :: prime]))
            power, exponent = prime, 0
            while power <= count:
                exponent += count // power
                power *= prime
            found.append((prime, _whole(exponent)))
    return tuple(found)


@lru_cache(256)
def _phi(modulus: int) -> int:
    found = modulus
    for prime, _ in _factors(modulus):
        found -= found // prime
    return found


@lru_cache(256)
def _factors(value: int) -> tuple[tuple[int, int], ...]:
    """Primes and their exponents; what is left beyond the largest divisor tried stands as one."""
    found: list[tuple[int, int]] = []
    divisor = 2
    last = MAX_TRIAL if value.bit_length() <= 128 else 200
    while divisor * divisor <= value and divisor <= last:
        count = 0
        while value % divisor == 0:
            value //= divisor
            count += 1
        if count:
            found.append((divisor, count))
        divisor += 1 if divisor == 2 else 2
    return (*found, (value, 1)) if value > 1 else tuple(found)


def _form(tree: Tree, depth: int) -> Form:
    if depth > MAX_DEPTH * 4:
        raise _NoRule
    if isinstance(tree, Num):
        return _of_fraction(tree.value)
    if not isinstance(tree, Node):
        raise _NoRule
    if tree.head == "^":
        return _raised(_form(tree.args[0], depth + 1), _form(tree.args[1], depth + 1))
    if tree.head == "factorial":
        count = exactly(tree.args[0])
        if count is None or count.denominator != 1 or not 0 <= count <= MAX_FACTORIAL:
            raise _NoRule
        return ((1, _factorial_powers(count.numerator)),)
    parts = [_form(each, depth + 1) for each in tree.args]
    if tree.head == "/":
        parts[1] = _raised(parts[1], _of_fraction(Fraction(-1)))
    found = parts[0]
    if tree.head == "neg":
        return tuple((-sign, powers) for sign, powers in found)
    for each in parts[1:]:
        found = _added(found, each) if tree.head == "+" else _multiplied(found, each)
    if tree.head not in ("+", "*", "/"):
        raise _NoRule
    return found


def _of_fraction(value: Fraction) -> Form:
    if not value:
        return ()
    powers = {**dict(_factors(abs(value.numerator))), **{prime: -count for prime, count in _factors(value.denominator)}}
    return ((1 if value > 0 else -1, tuple(sorted((base, _whole(count)) for base, count in powers.items()))),)


@lru_cache(1024)
def _whole(count: int) -> Form:
    return _of_fraction(Fraction(count))


def _number(form: Form) -> Fraction | None:
    total = Fraction(0)
    for sign, powers in form:
        term = Fraction(sign)
        for base, exponent in powers:
            count = _number(exponent)
            if count is None or count.denominator != 1 or abs(count) > MAX_APART:
                return None
            term *= Fraction(base) ** count.numerator
        total += term
    return total


def _multiplied(left: Form, right: Form) -> Form:
    if len(left) * len(right) > MAX_TERMS:
        raise _NoRule
    found: Form = ()
    for one, first in left:
        for two, second in right:
            found = _added(found, ((one * two, _joined(first, second)),))
    return found


def _joined(left: Powers, right: Powers) -> Powers:
    found = dict(left)
    for base, exponent in right:
        found[base] = _added(found[base], exponent) if base in found else exponent
    return tuple(sorted((base, exponent) for base, exponent in found.items() if exponent))


def _added(left: Form, right: Form) -> Form:
    """Terms whose exponents are not far apart are one: 10^9 - 10^8 is 9 times 10^8."""
    terms = list(left)
    for sign, powers in right:
        for place, (other, others) in enumerate(terms):
            ratio = _number(((1, _joined(powers, _inverted(others))),))
            if ratio is None:
                continue
            del terms[place]
            factor = other + sign * ratio
            if factor:
                ((one, rest),) = _of_fraction(factor)
                return _added(tuple(terms), ((one, _joined(rest, others)),))
            break
        else:
            terms.append((sign, powers))
    if len(terms) > MAX_TERMS:
        raise _NoRule
    return tuple(sorted(terms))


def _inverted(powers: Powers) -> Powers:
    return tuple((base, tuple((-sign, inner) for sign, inner in exponent)) for base, exponent in powers)


def _raised(form: Form, exponent: Form) -> Form:
    count = _number(exponent)
    if len(form) > 1:
        if count is None or count.denominator != 1 or not 0 < count <= 4:
            raise _NoRule
        return _multiplied(form, _raised(form, _added(exponent, _whole(-1)))) if count > 1 else form
    if not form:
        raise _NoRule
    sign, powers = form[0]
    if (count is not None and count.denominator != 1) or (sign < 0 and count is None):
        raise _NoRule
    negative = sign < 0 and count is not None and count.numerator % 2 == 1
    raised = [(base, _multiplied(inner, exponent)) for base, inner in powers]
    return ((-1 if negative else 1, tuple(sorted(each for each in raised if each[1]))),)


LOW, HIGH = 128, 640
"""Bits of precision for the first and the last try."""
MAX_VARIABLES = 12
"""Maximum variables for a comparison by value."""
COUNTS = frozenset({"n", "m", "k", "N", "M", "K", "j", "ell", "l"})
"""Letters that take integers."""
SIGNED = frozenset({"x", "y", "z", "t", "u", "v", "w", "theta", "X", "Y", "Z"})
"""Letters that may be negative."""
_JUMPS = frozenset({"floor", "ceil", "mod", "gcd", "lcm", "max", "min", "sgn", "factorial", "binom", "sum", "prod"})
_WHOLE_ONLY = frozenset({"mod", "gcd", "lcm", "sum", "prod"})
_BRANCHES = frozenset({"root", "^", "abs", "log"})
_IRRATIONAL = frozenset({"pi", "e", "i"})
_UNCOMPUTED = frozenset({"call:int", "call:iint", "call:oint", "call:lim", "call:derivative", "call:sum", "call:prod"})
_ENDLESS = frozenset({"sum", "prod"})
_WHOLE = tuple(map(Fraction, (7, 12, 29, 5, 102, 3, 18, 64, 11, 40, 9)))
_PARTS = tuple(
    Fraction(above, below)
    for above, below in (
        (37, 13), (5, 17), (91, 8), (13, 29), (211, 23), (3, 7), (58, 11), (149, 3), (1, 9), (17, 6), (260, 19), (8, 5),
        (71, 31),
    )
)  # fmt: skip


class Unknown(Exception):
    """Neither equality nor difference could be shown; the message says why, in a few countable words."""


def same(left: Tree, right: Tree) -> bool:
    """Whether two expressions are equal at all points where both are real.

    A bare `log` may be the natural or the common one, but the same on both sides.

    Raises:
        Unknown: nothing was shown.
    """
    if left == right:
        return True
    if isinstance(left, Num) and isinstance(right, Num):
        return left.value == right.value
    heads: set[str] = set()
    found: dict[str, None] = {}
    names_and_heads(left, found, heads)
    names_and_heads(right, found, heads)
    names = sorted(name for name in found if name not in CONSTANTS and name[0] != "#") if found else []
    if len(names) > MAX_VARIABLES:
        raise Unknown("too many variables")
    for common_log in (False, True) if "log" in heads else (False,):
        pair = _Pair(left, right, common_log, "i" in found, EXACT if found.keys().isdisjoint(_IRRATIONAL) else LOW)
        if pair.everywhere(names, heads) if names else pair.at({}) is Order.SAME:
            return True
    if heads & _UNCOMPUTED or (heads & _ENDLESS and "inf" in found):
        raise Unknown("a sum, limit, integral or derivative that is not computed")
    return False


class _Pair:
    """Two expressions to be compared at points."""

    def __init__(self, left: Tree, right: Tree, common_log: bool, is_complex: bool, first: int) -> None:
        self._left, self._right, self._common_log = left, right, common_log
        self._precisions: tuple[int, ...] = (EXACT,) if first == EXACT else (LOW, HIGH)
        self._defined = [False, False]
        self._complex = is_complex

    def everywhere(self, names: list[str], heads: set[str]) -> bool:
        """Whether no point tells the two apart and enough points show them the same."""
        needed = 6 if heads & _JUMPS or COUNTS.intersection(names) else 3
        agreed = 0
        for point in _positive(names, whole=not heads.isdisjoint(_WHOLE_ONLY)):
            found = self.at(point)
            if found is Order.DIFFERENT:
                return False
            agreed += found is Order.SAME
            if agreed >= needed:
                break
        if agreed < min(needed, 3):
            return self._beyond_the_reals(names)
        if heads & _BRANCHES and SIGNED.intersection(names):
            return all(self.at(point) is not Order.DIFFERENT for point in _negative(names))
        return True

    def _beyond_the_reals(self, names: list[str]) -> bool:
        """Whether the two agree as complex numbers, when they have hardly a real point in common."""
        if not all(self._defined):
            # An expression without a value anywhere never equals one with a value.
            return False
        if self._complex:
            raise Unknown("too few points within the domain")
        self._complex = True
        found = [self.at(point) for point in _positive(names)]
        if Order.DIFFERENT in found:
            return False
        if found.count(Order.SAME) < 3:
            raise Unknown("too few points within the domain")
        return True

    def at(self, point: dict[str, Fraction]) -> Order | None:
        """Order at a point, at the low precision, then the high one; None if a side is undefined or not real."""
        for bits in self._precisions:
            try:
                with field(bits) as numbers:
                    found = self._compare(numbers, point)
            except NeedsBalls:
                self._precisions = (LOW, HIGH)
                return self.at(point)
            except Imprecise:
                continue
            if bits == EXACT:
                return found
            # With a single point, values that agree at the low precision are compared again at the high one:
            # e^(pi sqrt 163) is within 10^-12 of an integer.
            if found is not Order.UNSURE and (found is not Order.SAME or point or bits == HIGH):
                return found
        if point:
            return None
        raise Unknown("values too close to tell apart")

    def _compare(self, numbers: Field, point: dict[str, Fraction]) -> Order | None:
        left, right = self._value(self._left, numbers, point), self._value(self._right, numbers, point)
        for side, value in enumerate((left, right)):
            self._defined[side] |= value is not None and not isinstance(value, TooBig)
        if left is None or right is None:
            # An undefined constant equals nothing; an expression is merely undefined here.
            return None if point else Order.DIFFERENT
        if isinstance(left, TooBig) or isinstance(right, TooBig):
            if isinstance(left, TooBig) and isinstance(right, TooBig):
                return self._settled(point, "values beyond every bound")
            return None if point else Order.DIFFERENT
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return Order.SAME if left == right else Order.DIFFERENT
        balls = _ball(left, numbers), _ball(right, numbers)
        if point and not self._complex and not all(map(numbers.is_real, balls)):
            return None
        found = numbers.order(*balls)
        if found is Order.SAME and numbers.is_large(balls[0]):
            return self._settled(point, "values too large to tell apart")
        return found

    def _settled(self, point: dict[str, Fraction], reason: str) -> Order | None:
        """Order of two large values by residues and prime powers; None if they prove nothing at this point."""
        if point:
            values = {name: Num(value) for name, value in point.items()}
            found = settle(put(self._left, values), put(self._right, values))
            return None if found is None else _ORDER[found]
        found = settle(self._left, self._right)
        if found is None:
            raise Unknown(reason)
        return _ORDER[found]

    def _value(self, tree: Tree, numbers: Field, point: dict[str, Fraction]) -> Value | TooBig | None:
        try:
            return Evaluation(numbers, point, self._common_log).value(tree)
        except Undefined:
            return None
        except TooBig as error:
            return error
        except Beyond as error:
            raise Unknown(str(error)) from error


_ORDER = {True: Order.SAME, False: Order.DIFFERENT}


def _positive(names: list[str], whole: bool = False) -> Iterator[dict[str, Fraction]]:
    for index in range(11):
        yield {
            name: _WHOLE[(index + 3 * place) % 11] if whole or name in COUNTS else _PARTS[(index + 5 * place) % 13]
            for place, name in enumerate(names)
        }


def _negative(names: list[str]) -> Iterator[dict[str, Fraction]]:
    for index in range(4):
        point = next(each for at, each in enumerate(_positive(names)) if at == index + 2)
        signed = [name for name in names if name in SIGNED]
        yield {
            name: -value if name in signed and (index % 2 == 0 or signed.index(name) % 2 == index // 2) else value
            for name, value in point.items()
        }


def _ball(value: Value, numbers: Field) -> Ball:
    return numbers.ball(value) if isinstance(value, Fraction) else value
