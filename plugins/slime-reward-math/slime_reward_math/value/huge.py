r"""Huge: rational values too large to write out, told apart by residues and proved equal by their prime powers.

Example:

    settle(read("10^{100000}"), read("10^{100000}+1"))        # False: they leave different remainders
    settle(read("10^{100000}"), read("(10^{50000})^2"))       # True: the same primes to the same powers

None where neither could be shown. Exponents may be as large as their towers: modulo m they count modulo phi(m).
"""

from fractions import Fraction
from functools import lru_cache

from slime_reward_math.tree import Node, Num, Tree
from slime_reward_math.value.approximate import exactly

PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549)
"""Moduli: two different values that leave the same remainder for all of them are hardly ever met, and never paid."""
MAX_FACTORIAL = 20_000
"""Largest n whose n! is multiplied out modulo a prime."""
MAX_APART = 2_000
"""How far the exponents of two terms may be apart that are added up."""
MAX_TERMS = 20
"""Terms of a sum."""
MAX_TRIAL = 50_000
"""Largest divisor that is tried."""
MAX_DEPTH = 12
"""Powers within powers."""

Powers = tuple[tuple[int, "Form"], ...]
"""Bases, mostly primes, with their exponents; sorted."""
Form = tuple[tuple[int, Powers], ...]
"""A sum of products of powers, each with its sign; sorted."""


class _NoRule(Exception):
    """This has no residue, or no form."""


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
    """The remainder; of a fraction, that of its numerator times the inverse of its denominator."""
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
    # Euler: from log2(modulus) on exponents count modulo phi, whatever base and modulus have in common.
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
    """The primes of n! with their exponents, by Legendre."""
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
    powers = {
        **dict(_factors(abs(value.numerator))),
        **{prime: -count for prime, count in _factors(value.denominator)},
    }
    return ((1 if value > 0 else -1, tuple(sorted((base, _whole(count)) for base, count in powers.items()))),)


@lru_cache(1024)
def _whole(count: int) -> Form:
    return _of_fraction(Fraction(count))


def _number(form: Form) -> Fraction | None:
    """The value of a form that is small enough to be written out."""
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
