"""Field: the numbers that an evaluation runs in when fractions do not suffice.

Example:

    with field(128) as numbers:
        numbers.function("sin", numbers.constant("pi"))

At precision 0 there are fractions alone; above it, python-flint's rigorous complex balls.
"""

from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

from slime_reward_math.value.outcomes import NeedsBalls

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


class _Fractions:
    """Raises NeedsBalls from each method. Most answers never call one, so they never import python-flint."""

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
