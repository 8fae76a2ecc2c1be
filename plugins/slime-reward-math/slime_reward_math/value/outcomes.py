"""Outcomes: how two values compare, and why an evaluation has no value."""

import enum


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
    """Equal to 60 bits more than needed."""
    DIFFERENT = "different"
    UNSURE = "unsure"
