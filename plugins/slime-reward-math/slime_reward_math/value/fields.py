"""Which Field there is: python-flint's balls where it is installed, else decimals of two precisions."""

from contextlib import AbstractContextManager

from slime_reward_math.value.field import Field


def field(bits: int) -> AbstractContextManager[Field]:
    """The field at a precision in bits; python-flint is imported on first use, because that takes 0.1 s."""
    try:
        from slime_reward_math.value.balls import Balls
    except ImportError:
        from slime_reward_math.value.decimals import Decimals

        return Decimals.precision(bits)
    return Balls.precision(bits)
