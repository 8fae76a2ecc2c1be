"""Balls: python-flint's complex balls as a Field; every inequality they show is proved.

The working precision of python-flint belongs to the process, so one lock guards it; a forked child gets a fresh one.
"""

import math
import os
import threading
from collections.abc import Callable
from fractions import Fraction

from flint import acb, arb, ctx, fmpq, fmpz

from slime_reward_math.value.outcomes import Beyond, Imprecise, Order, TooBig, Undefined

_lock = threading.RLock()


def _fresh_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)

_AGREE_BITS = 50
"""Two balls that overlap must be known to this many bits to count as the same."""
_LARGEST_EXPONENT = 1 << 40


class Balls:
    """Complex balls at one precision in bits, for as long as the context lasts."""

    def __init__(self, bits: int) -> None:
        self.bits, self._before, self._held = bits, bits, _lock

    def __enter__(self) -> "Balls":
        self._held.acquire()
        self._before, ctx.prec = ctx.prec, self.bits
        return self

    def __exit__(self, *arguments: object) -> None:
        ctx.prec = self._before
        self._held.release()

    def ball(self, value: Fraction) -> acb:
        return acb(arb(fmpq(value.numerator, value.denominator)))

    def constant(self, name: str) -> acb:
        if name == "pi":
            return acb(arb.pi())
        return acb(arb.const_e()) if name == "e" else acb(0, 1)

    def divide(self, above: acb, below: acb) -> acb:
        if below.contains(0):
            raise Undefined if below.is_exact() else Imprecise
        return above / below

    def power(self, base: acb, exponent: acb) -> acb:
        if base.contains(0):
            if base.is_exact() and exponent.real > 0:
                return acb(0)
            raise Undefined if base.is_exact() else Imprecise
        _bounded(exponent)
        size = abs(exponent * base.log())
        if not bool(size < _LARGEST_EXPONENT):
            raise TooBig if bool(size > _LARGEST_EXPONENT) else Imprecise
        return _finite(base.pow(exponent))

    def integer_power(self, base: acb, exponent: int) -> acb:
        if exponent.bit_length() > 400:
            raise TooBig
        if exponent < 0 and base.contains(0):
            raise Undefined if base.is_exact() else Imprecise
        if exponent.bit_length() > 30:
            return self.power(base, acb(fmpz(exponent)))
        return _finite(base.pow(acb(exponent)))

    def function(self, name: str, argument: acb) -> acb:
        try:
            method = _FUNCTIONS[name]
        except KeyError:
            raise Beyond(f"no rule for {name}") from None
        if name in ("exp", "sinh", "cosh", "tanh", "gamma", "lgamma"):
            _bounded(argument)
        return _finite(method(argument))

    def floor(self, argument: acb) -> int:
        if not argument.imag.contains(0):
            raise Undefined
        whole = argument.real.floor().unique_fmpz()
        if whole is None or abs(whole) > 1 << 4096:
            raise Imprecise
        return int(whole)

    def sign(self, argument: acb) -> int:
        if not argument.imag.contains(0):
            raise Undefined
        if argument.real > 0:
            return 1
        if argument.real < 0:
            return -1
        if argument.real.is_exact():
            return 0
        raise Imprecise

    def is_real(self, argument: acb) -> bool:
        return bool(argument.imag.contains(0))

    def approximate(self, argument: acb) -> float | None:
        found = float(argument.real.mid())
        return found if math.isfinite(found) else None

    def is_large(self, argument: acb) -> bool:
        return bool(abs(argument) > arb(2) ** (self.bits // 2))

    def order(self, left: acb, right: acb) -> Order:
        difference = left - right
        if not difference.contains(0):
            return Order.DIFFERENT
        size = max(abs(left).abs_upper(), abs(right).abs_upper())
        error = abs(difference).abs_upper()
        if error <= size * arb(2) ** -_AGREE_BITS or error <= arb(2) ** (-self.bits // 2):
            return Order.SAME
        return Order.UNSURE


def _bounded(exponent: acb) -> None:
    if abs(exponent) > arb(_LARGEST_EXPONENT):
        raise TooBig


def _finite(value: acb) -> acb:
    if not value.is_finite():
        raise Undefined
    return value


def _absolute(argument: acb) -> acb:
    return acb(abs(argument.real)) if argument.imag.is_zero() else acb(abs(argument))


_FUNCTIONS: dict[str, Callable[[acb], acb]] = {
    "sqrt": acb.sqrt, "exp": acb.exp, "ln": acb.log, "sin": acb.sin, "cos": acb.cos, "tan": acb.tan, "cot": acb.cot,
    "sec": acb.sec, "csc": acb.csc, "sinh": acb.sinh, "cosh": acb.cosh, "tanh": acb.tanh, "coth": acb.coth,
    "sech": acb.sech, "csch": acb.csch, "arcsin": acb.asin, "arccos": acb.acos, "arctan": acb.atan,
    "arcsinh": acb.asinh, "arccosh": acb.acosh, "arctanh": acb.atanh, "gamma": acb.gamma, "lgamma": acb.lgamma,
    "rgamma": acb.rgamma, "abs": _absolute, "real": lambda argument: acb(argument.real),
}  # fmt: skip
