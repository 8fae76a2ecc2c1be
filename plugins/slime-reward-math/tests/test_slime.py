"""strict_slime: what slime's own tests pin, stated anew."""

from collections.abc import Callable

import pytest

from slime_core import Score
from slime_reward_math import slime
from tests.tables import table


@table(
    "raw, form",
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\tfrac{1}{2}", r"\frac{1}{2}"),
        (r"\left(1\right)", "(1)"),
        (r"45^{\circ}", "45"),
        (r"45^\circ", "45"),
        (".7", "0.7"),
        ("0.5", r"\frac{1}{2}"),
        (".5", r"\frac{1}{2}"),
        ("3/4", r"\frac{3}{4}"),
        ("1 + 1", "1+1"),
        (r"\text{42}", "42"),
        ("x=5", "5"),
        (r"\sqrt3", r"\sqrt{3}"),
    ],
)
def test_strict_math_normal_form(raw: str, form: str) -> None:
    assert slime.mathd_form(raw) == form


@table(
    "raw, form",
    [
        ("x = 42", "42"),
        ("an answer", "answer"),
        ("42 square", "42"),
        ("100 dollars", "100"),
        ("1,234,567", "1234567"),
        ("a b c", "bc"),
        ("42<|endoftext|>", "42"),
        ("42<|im_end|>", "42"),
    ],
)
def test_strict_dapo_normal_form(raw: str, form: str) -> None:
    assert slime.dapo_form(raw) == form


@table(
    "name, label, response, value",
    [
        ("math", r"\boxed{42}", r"answer: \boxed{42}", 1.0),
        ("math", "42", "just 42", 0.0),
        ("math", "", r"\boxed{42}", 0.0),
        ("math", 0, r"\boxed{0}", 0.0),
        ("math", r"\frac{1}{2}", r"\boxed{\frac{2}{4}}", 0.0),
        ("math", "0.5", r"\boxed{\frac{1}{2}}", 1.0),
        ("math", "1+x", r"\boxed{x+1}", 1.0),
        ("math", "42", r"\boxed{43}", 0.0),
        ("boxed_math", "42", r"\boxed{42}", 0.0),
        ("deepscaler", "42", r"Let me. \boxed{99}</think>Final: \boxed{42}", 1.0),
        ("deepscaler", "42", r"Scratch \boxed{wrong}###Response\boxed{42}", 1.0),
        ("deepscaler", "42", r"\boxed{42}", 0.0),
        ("deepscaler", "42", "plain</think>no box here", 0.0),
        ("deepscaler", "", r"</think>\boxed{42}", 0.0),
        ("deepscaler", 42, r"</think>\boxed{42}", 1.0),
        ("deepscaler", r"\boxed{42}", r"</think>\boxed{42}", 1.0),
        ("dapo", "42", "Long solution. Answer: 42", 1.0),
        ("dapo", "42", "Answer: 1\nAnswer: 42", 1.0),
        ("dapo", "42", "just a number 42", -1.0),
        ("dapo", "42", "Answer: 43", -1.0),
        ("dapo", "42", "Answer: 42\n" + "filler " * 60, -1.0),
        ("dapo", "1.5", "Answer: 1", 1.0),
        ("dapo", "half", "Answer: half", -1.0),
        ("boxed_dapo", "42", r"\boxed{42}", -1.0),
        ("f1", "the", "the", 0.0),
        ("f1", "3.14", "314", 1.0),
        ("f1", "a quick brown fox", "the brown fox", 0.8),
    ],
)
def test_strict_slime_rewards(
    score: Callable[..., object], name: str, label: object, response: str, value: float
) -> None:
    found = score(name, label, response, strict_slime=True)
    assert isinstance(found, Score)
    assert found.value == pytest.approx(value)


def test_strict_box_is_the_last_closed() -> None:
    assert slime.last_boxed(r"\boxed{never closes") is None
    assert slime.last_boxed(r"\boxed{wrong}, \boxed{42}") == "42"
    assert slime.last_boxed("plain") is None
