from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_reward_math.number import MAX_LENGTH, read_number

INTEGERS = st.integers(-(10**30), 10**30)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", Fraction(42)),
        ("+42", Fraction(42)),
        ("- 42", Fraction(-42)),
        ("0.50", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        ("1.5/3", Fraction(1, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"-\frac{-3}{ 4 }", Fraction(3, 4)),
        (r"\frac{1,000}{-8}", Fraction(-125)),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize("text", ["", "-", ".", "x", "1 2", "1,23", "32, 349", "1,2345", "1/2/3", "inf", "nan"])
def test_anything_else_is_no_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["50%", "1e5", "1_000", "٣", "²", "1/-2", r"1\frac{1}{2}"])
def test_other_notations_of_numbers_are_not_read(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["1/0", r"\frac{1}{0}", "0/0.0"])
def test_a_zero_denominator_makes_no_number(text: str) -> None:
    assert read_number(text) is None


def test_a_text_beyond_the_length_limit_is_no_number() -> None:
    assert read_number("9" * MAX_LENGTH) == 10**MAX_LENGTH - 1
    assert read_number("9" * (MAX_LENGTH + 1)) is None


@given(INTEGERS)
def test_thousands_separators_do_not_change_an_integer(number: int) -> None:
    assert read_number(f"{number:,}") == read_number(str(number)) == number


@given(INTEGERS, st.integers(1, 10**12))
def test_both_spellings_of_a_fraction_are_the_fraction(above: int, below: int) -> None:
    assert read_number(f"{above}/{below}") == read_number(f"\\frac{{{above}}}{{{below}}}") == Fraction(above, below)


@given(st.decimals(-(10**9), 10**9, places=6))
def test_decimals_are_no_floats(number: object) -> None:
    assert read_number(str(number)) == Fraction(str(number))
