from hypothesis import given
from hypothesis import strategies as st

from slime_reward_math import grade
from slime_reward_math.extract import MAX_ANSWER, extract, last_marked
from tests.tables import table


@table(
    "response, answer",
    [
        (r"\boxed{42}", "42"),
        (r"\boxed {42}", "42"),
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{ 5 }", "5"),
        (r"\boxed 42 and so on", "42"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2"),
        (r"\boxed{1}</think>\boxed{2}</think>\boxed{3}", "3"),
        (r"\boxed{x=\boxed{5}}", "5"),
        (r"\boxed{\text{so } \boxed{5}}", "5"),
        (r"$\boxed{1}$, \text{ and } $\boxed{2}$", "1, 2"),
        (r"as \frac{1}{2} is less: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{5} \boxed{5}", "5"),
        (r"\boxed{1} is wrong, \boxed{2}", "2"),
    ],
)
def test_the_answer_is_found(response: str, answer: str) -> None:
    assert extract(response).text == answer


@table(
    "response, reason",
    [
        ("42", "no box"),
        ("", "no box"),
        (r"\boxed{", "the box is not closed"),
        (r"\boxed{1} \boxed{2", "the box is not closed"),
        (r"\boxed{}", "the box is empty"),
        (r"\boxed{ }", "the box is empty"),
        (r"\boxed{1}</think>", "no box"),
        (r"<think>\boxed{1}", "thinking did not end"),
        (r"\boxed{" + "1" * MAX_ANSWER + "}", "the box is not closed"),
        (r"\boxed{1\}", "the box is not closed"),
    ],
)
def test_a_missing_answer_has_a_reason(response: str, reason: str) -> None:
    assert extract(response)[:2] == (None, reason)


@table(
    "response, answer",
    [
        ("The final answer is 42.", "42"),
        (r"Final Answer: the final answer is $\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("Answer: 5\nThat is all.", "5"),
        (r"The answer is 1. \boxed{2}", "2"),
    ],
)
def test_phrases_state_an_answer_if_enabled(response: str, answer: str) -> None:
    assert extract(response, phrases=True).text == answer


@table(
    "response, line",
    [
        ("Answer: 34", "34"),
        ("**Answer:** 34", "34"),
        ("Answer: 1\nmore\nANSWER: 2", "2"),
        ("Answer:\n7", "7"),
        ("no line", None),
        ("<think>Answer: 1", None),
    ],
)
def test_the_last_answer_line_is_found(response: str, line: str | None) -> None:
    assert last_marked(response).text == line


@given(st.text(alphabet="ab{}\\ 1", max_size=60))
def test_balanced_text_is_extracted_unchanged(text: str) -> None:
    depth = 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return
    if depth == 0 and "\\" not in text and text.strip():
        assert extract(f"so \\boxed{{{text}}} it is").text == text.strip()


ENDS = (
    "5+5=10",
    "so 10",
    "= 10",
    "$5+5=10$",
    r"\(10\)",
    "f",
    "-",
    "x =",
    "4 <",
    "7 eggs",
    "Total: 10",
    r"2*5",
    r"\pi",
    "10%",
)
"""With what the line above a box may end."""


@table("end", ENDS)
@table("line", ["\n", "\n\n", " \n", "\r\n"])
@table("box", [r"\boxed{10}", r"$\boxed{10}$", r"$$\boxed{10}$$"])
def test_line_above_is_not_part_of_a_box(end: str, line: str, box: str) -> None:
    assert grade("10", f"{end}{line}{box}").correct is True
