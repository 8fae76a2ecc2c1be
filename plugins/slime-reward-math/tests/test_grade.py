import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_reward_math import Outcome, grade


def boxed(answer: str) -> str:
    return f"Therefore the answer is $\\boxed{{{answer}}}$."


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("42", "42.0"),
        ("1/2", "0.5"),
        ("0.5", r"\dfrac{1}{2}"),
        (r"$\frac12$", "1/2"),
        ("1234", "1{,}234"),
        ("1,234", r"1\,234"),
        ("-3", "\u22123"),
        ("x + 1", "x+1"),
        (r"$\left(1, 2\right)$", "(1,2)"),
        (r"\leftarrow", r"\leftarrow"),
        ("east", "east."),
        (42, "42"),
        (0.5, "1/2"),
        (1e-7, "0.0000001"),
        (10**400, "1" + "0" * 400),
        (r"We get \boxed{7}", "7"),
    ],
)
def test_equal_answers_are_correct(gold: object, answer: str) -> None:
    assert grade(gold, boxed(answer)).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/3", "0.333333333333333333"),
        ("2", "-2"),
        ("23", "2 3"),
        ("32349", "32, 349"),
        ("x", "X"),
        ("50", r"50\%"),
        ("10000000000000001", "10000000000000000"),
        ("1", "1/0"),
        (r"\leftarrow", "arrow"),
    ],
)
def test_different_answers_are_wrong(gold: object, answer: str) -> None:
    assert grade(gold, boxed(answer)).outcome is Outcome.WRONG


@pytest.mark.parametrize("gold", [None, "", "  ", "$$", [], {}, True, float("nan"), float("inf"), r"\boxed{4"])
def test_without_a_gold_answer_nothing_is_graded(gold: object) -> None:
    assert grade(gold, boxed("1")).outcome is Outcome.NO_GOLD


@pytest.mark.parametrize("response", ["42", "", r"\boxed{}", r"\boxed{ }", r"\boxed{42"])
def test_a_response_without_a_boxed_answer_is_told_apart_from_a_wrong_one(response: str) -> None:
    assert grade("42", response).outcome is Outcome.NO_ANSWER


def test_the_grade_says_what_it_read() -> None:
    assert grade("1/2", boxed(r"\frac{1}{2}")).answer == r"\frac{1}{2}"


@pytest.mark.parametrize(
    "response",
    [
        boxed("9" * 200_000),
        boxed("9" * 999 + "/" + "7" * 500),
        boxed("1," * 4_000 + "1"),
        boxed(" " * 9_000),
        "\\boxed{" * 5_000 + "1" + "}" * 5_000,
        "\\boxed{" + "{" * 200_000,
        "\\boxed{" * 200_000,
        boxed("\0\ud800\u202e"),
        boxed("\\" * 9_001),
        "</think>" * 100_000,
    ],
    ids=["digits", "ratio", "commas", "spaces", "nested", "open", "boxes", "odd", "backslashes", "thoughts"],
)
def test_hostile_responses_are_graded_like_any_other(response: str) -> None:
    assert not grade("3", response).correct


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_numbers_are_graded_by_value(gold: object, answer: object) -> None:
    assert grade(str(gold), boxed(str(answer))).correct == (gold == answer)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()), st.text())
def test_nothing_raises(gold: object, text: str) -> None:
    assert grade(gold, text).answer is None or "\\boxed" in text
    grade(gold, boxed(text))


@given(st.text(alphabet="abcxyz+-^_0123456789", min_size=1))
def test_an_answer_equals_itself(answer: str) -> None:
    assert grade(answer, boxed(answer)).correct
