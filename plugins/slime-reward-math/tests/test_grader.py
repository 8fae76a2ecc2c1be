from hypothesis import given
from hypothesis import strategies as st

from slime_reward_math import Outcome, compare, grade, grade_many
from slime_reward_math.cases import box
from slime_reward_math.grader import FAULT
from tests.tables import table

ANSWERS = st.text(alphabet="0123456789xyn+-*/^_(){}[],.=<>\\ \\frac\\sqrt%$|", max_size=30)


@table(
    "gold, answer",
    [(42, "42"), (0, "0"), (0.5, "1/2"), (1e-7, "0.0000001"), (10**400, "1" + "0" * 400), (r"We get \boxed{7}", "7")],
)
def test_golds_may_be_numbers_and_boxes(gold: object, answer: str) -> None:
    assert grade(gold, box(answer)).correct


@table("gold", [None, "", "  ", [], {}, True, float("nan"), float("inf"), r"\boxed{4", "x" * 30_000])
def test_without_a_gold_answer_nothing_is_graded(gold: object) -> None:
    found = grade(gold, box("1"))
    assert (found.outcome, found.reason, found.score) == (Outcome.UNDECIDED, "no gold answer", None)


def test_a_gold_in_prose_is_its_last_formula() -> None:
    assert grade("Setting $x = 2$ we see that the sum of both is $7$.", box("7")).correct


def test_grade_reports_answer_and_forms() -> None:
    found = grade("x+1", box("1+x"))
    assert (found.answer, found.forms, found.score) == ("1+x", ("(x + 1)", "(1 + x)"), 1.0)
    assert grade("x", "no box").reason == "no box"


def test_many_are_graded_in_order() -> None:
    found = grade_many([("1", box("1")), ("1", box("2"))])
    assert [each.correct for each in found] == [True, False]


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_graded_by_value(gold: object, answer: object) -> None:
    assert grade(str(gold), box(str(answer))).correct == (gold == answer)


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_a_perturbed_number_flips_the_verdict(number: int, change: int) -> None:
    assert compare(str(number), f"{number:,}").correct
    assert not compare(str(number), str(number + change)).correct
    assert not compare(f"\\sqrt{{{abs(number) + 2}}}x", f"\\sqrt{{{abs(number) + 2 + change}}}x").correct


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True), st.randoms())
def test_lists_are_unordered_and_tuples_ordered(numbers: list[int], random: "st.random.Random") -> None:
    mixed = list(numbers)
    random.shuffle(mixed)
    one, two = ", ".join(map(str, numbers)), ", ".join(map(str, mixed))
    assert compare(one, two).correct
    assert compare(f"({one})", f"({two})").correct == (mixed == numbers)


@given(ANSWERS)
def test_answers_equal_themselves(answer: str) -> None:
    if answer.strip(" $.,{}"):
        assert compare(answer, answer).outcome is not Outcome.UNDECIDED


@given(ANSWERS, ANSWERS)
def test_random_answers_cause_no_fault(gold: str, answer: str) -> None:
    assert not compare(gold, answer).reason.startswith(FAULT)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()), st.text())
def test_random_golds_cause_no_fault(gold: object, text: str) -> None:
    for response in (text, box(text)):
        assert not grade(gold, response).reason.startswith(FAULT)
