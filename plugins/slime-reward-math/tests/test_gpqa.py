from collections.abc import Callable

import pytest

from slime_core import Score, Unscored
from slime_reward_math.choice import chosen_letter

LETTERS = tuple("ABCDEFGHIJ")


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("The answer is B.", "B"),
        ("Answer: C", "C"),
        ("My choice is D", "D"),
        ("E is the correct option", "E"),
        ("Final answer: B", "B"),
        ("**Answer: B**", "B"),
        ("Answer: **(B)**", "B"),
        (r"so $\boxed{\text{B}}$", "B"),
        (r"\boxed{B. four}", "B"),
        ("ANSWER: C\nOn review:\nANSWER: B", "B"),
        ("Answer: A is wrong.</think>The answer is B.", "B"),
        ("b. 4", "B"),
        ("B", "B"),
        ("(B)", "B"),
        ("答案：Ｂ", "B"),
        ("I would pick B, a safe choice.", "B"),
        ("The answer is not A but B, so the answer is B", "B"),
        ("The answer is C because I computed it.", "C"),
        (r"We need $\boxed{H \ll \Delta E}$. **Answer: D**", "D"),
        ("The correct answer is (A) Paris", "A"),
    ],
)
def test_the_chosen_letter(response: str, letter: str) -> None:
    assert chosen_letter(response, LETTERS) == letter


@pytest.mark.parametrize(
    "response",
    [
        "",
        "no idea, sorry",
        "Reasoning only, no final answer token is present.",
        "The answer is definitely clear",
        "Answer: A or B",
        "Answer: A, B, C, D",
        "(A), (B), (C) and (D) are all possible",
        "<think>The answer is B.",
        "I think therefore I am",
        "A long story about a fox",
        "The answer is K",
        "The answer is not B.",
    ],
)
def test_no_letter_is_chosen(response: str) -> None:
    assert chosen_letter(response, LETTERS) is None


def test_the_text_of_one_choice_chooses_it() -> None:
    choices = ["London", "Paris", "Berlin"]
    assert chosen_letter("Definitely Paris.", "ABC", choices) == "B"
    assert chosen_letter("London, Paris and Berlin", "ABC", choices) is None
    assert chosen_letter("100", "AB", ["10", "1000"]) is None


@pytest.mark.parametrize(
    ("label", "metadata", "response", "value"),
    [
        ("C", {}, "The answer is C.", 1.0),
        ("D", {}, "The answer is C.", 0.0),
        (2, {"choices": ["a1", "b2", "c3", "d4"]}, "Answer: C", 1.0),
        (1, {"choices": {"a": "first", "b": "second", "c": "third"}}, "Answer: B", 1.0),
        ("capital of france", {"choices": ["London", "Capital of France", "Berlin"]}, "I think the answer is B.", 1.0),
        ("anything", {"correct_letter": "a"}, "Answer: A", 1.0),
        ("A", {}, "no idea, sorry", 0.0),
        ("A", {"choices": ["x", "y"]}, "Answer: E", 0.0),
        ("10", {"choices": ["10", "20"]}, "It is 100.", 0.0),
    ],
)
def test_labels_and_metadata(
    score: Callable[..., object], label: object, metadata: dict[str, object], response: str, value: float
) -> None:
    found = score("gpqa", label, response, metadata=metadata)
    assert isinstance(found, Score)
    assert found.value == value


def test_a_label_that_is_no_choice_is_unscored(score: Callable[..., object]) -> None:
    assert isinstance(score("gpqa", "some answer", "random text"), Unscored)


def test_the_boxed_variant_reads_the_box_alone(score: Callable[..., object]) -> None:
    assert score("boxed_gpqa", "B", r"Answer: A. \boxed{B}") == Score(1.0, {"correct": 1.0, "answered": 1.0})


@pytest.mark.parametrize(
    ("label", "response", "value"),
    [
        ("B", "The answer is B.", 1.0),
        ("C", "we ruled out A, then B, settled on C", 1.0),
        ("C", "ANSWER: C\nANSWER: B", 1.0),
        ("A", "no idea, sorry", 1.0),
        ("some answer", "random text", 0.0),
    ],
)
def test_slimes_verdicts(score: Callable[..., object], label: str, response: str, value: float) -> None:
    assert score("gpqa", label, response, strict_slime=True) == Score(value)
