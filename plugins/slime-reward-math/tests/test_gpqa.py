import asyncio
from collections.abc import Callable

from slime_core import Sample, Score, Unscored
from slime_core.roles import RewardContext, Setup
from slime_reward_math.choice import chosen_letter, listed_choices
from slime_reward_math.plugin import slime_rewards
from tests.tables import table

LETTERS = tuple("ABCDEFGHIJ")


@table(
    "response, letter",
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
        ("A, B and C fail, leaving D", "D"),
        ("Options A, B and D are ruled out. That leaves C.", "C"),
        ("By elimination only (B) remains.", "B"),
        ("A and C are wrong, so we are left with B.", "B"),
        ("The remaining option is E", "E"),
        ("Answer: B. Wait, B is wrong. The answer is C.", "C"),
        (r"\boxed{7} are left. Answer: D", "D"),
        ("Not B. The answer is B after all", "B"),
    ],
)
def test_letter_is_chosen(response: str, letter: str) -> None:
    assert chosen_letter(response, LETTERS) == letter


@table(
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
        "The answer is B. No, wait, B is wrong.",
        "Answer: C. Actually, that is incorrect.",
        r"\boxed{B}. But B is not correct.",
        r"The answer is A, so \boxed{42}",
        r"Answer: A. \boxed{\text{none}}",
        r"The answer is C. \boxed{B \text{ or } C}",
        "A and B fail, leaving C or D",
        r"Answer: B. $\boxed{Q}$",
    ],
)
def test_no_letter_is_chosen(response: str) -> None:
    assert chosen_letter(response, LETTERS) is None


def test_choice_text_chooses_its_letter() -> None:
    choices = ["London", "Paris", "Berlin"]
    assert chosen_letter("Definitely Paris.", "ABC", choices) == "B"
    assert chosen_letter("London, Paris and Berlin", "ABC", choices) is None
    assert chosen_letter("100", "AB", ["10", "1000"]) is None


CHOICES = [r"$\frac{1}{3}$", "1/2", "x < 1", "x > 1"]


@table(
    "response, letter",
    [
        (r"\boxed{\frac12}", "B"),
        (r"\boxed{0.5}", "B"),
        (r"\boxed{1/3}", "A"),
        (r"\boxed{x<1}", "C"),
        (r"\boxed{x>1}", "D"),
        (r"\boxed{(1,\infty)}", "D"),
        (r"\boxed{\frac14}", None),
        (r"\boxed{x}", None),
        (r"\boxed{\frac{1}{2} \text{ or } \frac{1}{3}}", None),
    ],
)
def test_boxed_choice_text_chooses_its_letter(response: str, letter: str | None) -> None:
    assert chosen_letter(response, "ABCD", CHOICES) == letter


@table(
    "prompt, choices",
    [
        ("Which? (A) 1/3 (B) 1/2 (C) 2", ["1/3", "1/2", "2"]),
        ("Which?\nA. x < 1\nB. x > 1\n", ["x < 1", "x > 1"]),
        ("Which?\nA) $\\frac12$\nB) 2\nAnswer with a letter.", [r"\frac12", "2"]),
        ("Solve A. B says nothing.", []),
        ("No choices", []),
        ("(B) 1 (C) 2", []),
    ],
)
def test_choices_are_listed_from_the_prompt(prompt: str, choices: list[str]) -> None:
    assert listed_choices(prompt) == choices


@table(
    "label, response, value",
    [("B", r"\boxed{\frac12}", 1.0), ("B", r"\boxed{\frac13}", 0.0), ("A", r"\boxed{E}", 0.0), ("C", "leaving C", 1.0)],
)
def test_prompt_choices_are_used(label: str, response: str, value: float) -> None:
    specs = {spec.name: spec for spec in slime_rewards()}
    reward = specs["gpqa"].factory(specs["gpqa"].model(), Setup(lambda *_: None, seed=1))  # type: ignore[arg-type]
    sample = Sample(prompt="Which? (A) 1/3 (B) 1/2 (C) 2", label=label, response=response)
    found = asyncio.run(reward(sample, RewardContext(0, False, 1)))  # type: ignore[arg-type]
    assert isinstance(found, Score)
    assert found.value == value


def test_choices_differing_in_a_sign_are_distinct(score: Callable[..., object]) -> None:
    choices = {"choices": ["x<1", "x>1"]}
    assert score("gpqa", "x>1", "Answer: B", metadata=choices) == Score(1.0, {"correct": 1.0, "answered": 1.0})
    assert score("gpqa", "x>1", "Answer: A", metadata=choices) == Score(0.0, {"correct": 0.0, "answered": 1.0})


@table(
    "label, metadata, response, value",
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


def test_label_outside_the_choices_is_unscored(score: Callable[..., object]) -> None:
    assert isinstance(score("gpqa", "some answer", "random text"), Unscored)


def test_boxed_variant_reads_only_the_box(score: Callable[..., object]) -> None:
    assert score("boxed_gpqa", "B", r"Answer: A. \boxed{B}") == Score(1.0, {"correct": 1.0, "answered": 1.0})


@table(
    "label, response, value",
    [
        ("B", "The answer is B.", 1.0),
        ("C", "we ruled out A, then B, settled on C", 1.0),
        ("C", "ANSWER: C\nANSWER: B", 1.0),
        ("A", "no idea, sorry", 1.0),
        ("some answer", "random text", 0.0),
    ],
)
def test_strict_slime_gpqa(score: Callable[..., object], label: str, response: str, value: float) -> None:
    assert score("gpqa", label, response, strict_slime=True) == Score(value)
