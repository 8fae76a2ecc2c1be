"""Field: the numbers that an evaluation runs in when fractions do not suffice, and what went wrong when none came out.

Example:

    with field(128) as numbers:
        numbers.function("sin", numbers.constant("pi"))

At precision 0 there are fractions alone; above it, python-flint's rigorous complex balls.
"""

import enum
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

if TYPE_CHECKING:
    from flint import acb

    from slime_reward_math.value.balls import Balls

    Ball: TypeAlias = acb
    Field: TypeAlias = Balls
else:
    # python-flint is imported on first use: that takes 0.1 s.
    Ball = Field = object

EXACT = 0
"""The precision at which there are fractions alone."""
Value: TypeAlias = Fraction | Ball
"""An exact rational while it lasts, then a complex number with its error."""


class Undefined(Exception):
    """There is no value here: a division by zero, a factorial of a negative integer."""


class Imprecise(Exception):
    """The precision does not suffice to tell: the floor of what may be 2 or a little less."""


class TooBig(Exception):
    """The value is beyond every bound: a tower of powers."""


class Beyond(Exception):
    """This evaluator has no rule for it, or it would take too long."""


class NeedsBalls(Exception):
    """Fractions do not suffice."""


class Order(enum.Enum):
    """How two values compare."""

    SAME = "same"
    """Equal as far as 60 bits more than needed show."""
    DIFFERENT = "different"
    UNSURE = "unsure"


class _Fractions:
    """No field: each method raises NeedsBalls. Most answers never call one, so they never import python-flint."""

    @staticmethod
    def ball(*arguments: object) -> NoReturn:
        raise NeedsBalls

    constant = divide = power = integer_power = function = floor = sign = is_real = approximate = is_large = ball
    order = ball


_EXACTLY = nullcontext(cast(Field, _Fractions()))


def field(bits: int) -> AbstractContextManager[Field]:
    """The field at a precision in bits; fractions alone at `EXACT`."""
    return _EXACTLY if bits == EXACT else _balls()(bits)


@cache
def _balls() -> type[Field]:
    from slime_reward_math.value.balls import Balls

    return Balls


def warm_up() -> None:
    """Import what balls need now, so that no verdict waits for it."""
    _balls()
