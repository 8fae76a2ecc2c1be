import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_reward_math.extract import MAX_ANSWER, last_boxed


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} follows", r"\frac{1}{2}"),
        (r"\boxed { 7 }", "7"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"<think>a</think><think>\boxed{1}</think>\boxed{3}", "3"),
    ],
)
def test_the_last_box_after_the_last_thought_is_the_answer(response: str, answer: str) -> None:
    assert last_boxed(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        "42",
        r"\boxed 42",
        r"\boxed{42",
        r"\boxed{1} and then \boxed{2",
        r"\boxed{1}</think> I do not know",
        r"\boxed{1\}",
        "",
    ],
)
def test_without_a_complete_last_box_there_is_no_answer(response: str) -> None:
    assert last_boxed(response) is None


def test_a_box_beyond_the_length_limit_is_no_answer() -> None:
    assert last_boxed(f"\\boxed{{{'1' * (MAX_ANSWER - 2)}}}") is not None
    assert last_boxed(f"\\boxed{{{'1' * (MAX_ANSWER - 1)}}}") is None


@given(st.text(alphabet="{}\\boxed 1</think>", max_size=200))
def test_any_text_can_be_searched(text: str) -> None:
    answer = last_boxed(text)
    assert answer is None or answer in text


@given(st.text(alphabet="ab1 +^_", max_size=40), st.text(max_size=40).filter(lambda text: "\\" not in text))
def test_what_stands_before_the_box_does_not_matter(answer: str, before: str) -> None:
    assert last_boxed(f"{before}\\boxed{{{answer}}}") == answer.strip()
