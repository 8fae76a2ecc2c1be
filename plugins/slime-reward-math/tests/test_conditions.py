r"""Conditions: every form of one, everywhere around a box, is not an answer; what only looks like one changes nothing.

`data/unconditional.tsv` holds gold and response of answers with such words that hold without a condition.
"""

import itertools
from pathlib import Path

import pytest

from slime_reward_math import compare, grade
from slime_reward_math.context.conditions import conditional, conditional_before, conditional_within

PLAIN = Path(__file__).with_name("data") / "unconditional.tsv"
GOLDS = (r"5", r"-7", r"\frac{2}{3}", r"3,4", r"(3,4)", r"45^\circ", r"x=3", r"2\sqrt{3}", r"a^2-4")
CONDITIONS = """if n is even|only if n is even|provided n is even|provided that n is even|as long as n is
    even|assuming n is even|assuming that n is even|unless n is odd|when n is even|whenever n is
    even|only when n is even|so long as n is even|on condition that n is even|on the condition that n is
    even|under the condition that n is even|in case n is even|under the assumption that n is
    even|supposing n is even|contingent on n being even|subject to n being even|providing n is even|for
    even n|only for even n|except when n is odd|except for odd n|depending on n|if and only if n is
    even|in the event that n is even|with the proviso that n is even|conditional on n being even|unless
    n = 2|as long as the coin is fair"""
VERBS = (
    " ",
    " holds ",
    " works ",
    " survives ",
    " is valid ",
    " is correct ",
    " is the answer ",
    " is right ",
    " is true ",
)
BEHIND = (r"So $x$ is $\boxed{%s}$%s%s.", r"The answer is \boxed{%s}, which%s%s.", r"\boxed{%s}. But this%s%s.")
BEFORE = (r"%s, the answer is \boxed{%s}.", r"So it is, %s, \boxed{%s}.", r"Then, %s, we get $\boxed{%s}$.")
WITHIN = (r"%s \text{ %s}", r"%s\ (\text{%s})", r"%s,\ \text{but %s}")


def conditions() -> list[str]:
    return [" ".join(each.split()) for each in CONDITIONS.split("|")]


@pytest.mark.parametrize("gold", GOLDS)
def test_no_answer_under_a_condition_behind_its_box_is_paid(gold: str) -> None:
    said = itertools.product(BEHIND, VERBS, conditions())
    responses = [form % (gold, verb, each) for form, verb, each in said if verb != " " or form is BEHIND[0]]
    assert [each for each in responses if grade(gold, each).correct] == []
    assert all(grade(gold, each.partition("}$")[0] + "}$.").correct for each in responses if "}$" in each)


@pytest.mark.parametrize("gold", GOLDS)
def test_no_answer_under_a_condition_before_its_box_is_paid(gold: str) -> None:
    said = itertools.product(BEFORE, conditions())
    responses = [form % (each.capitalize() if form is BEFORE[0] else each, gold) for form, each in said]
    assert [each for each in responses if grade(gold, each).correct] == []


@pytest.mark.parametrize("gold", GOLDS)
def test_no_answer_under_a_condition_within_its_box_is_paid(gold: str) -> None:
    answers = [form % (gold, each) for form, each in itertools.product(WITHIN, conditions())]
    assert [each for each in answers if compare(gold, each).correct] == []


@pytest.mark.parametrize(("gold", "response"), [line.split("\t") for line in PLAIN.read_text("utf-8").splitlines()])
def test_what_only_looks_like_a_condition_changes_nothing(gold: str, response: str) -> None:
    assert grade(gold, response, phrases=True).correct


def test_a_formula_may_say_where_it_holds() -> None:
    assert not conditional(", provided $x > 0$", r"\sqrt{x}")
    assert conditional(", provided $n > 0$", r"\sqrt{x}")
    assert conditional(" survives only if n is even", "x=3")


def test_a_condition_before_a_box_is_a_step_where_more_follows() -> None:
    assert conditional_before("As long as n is even, the answer is", "5")
    assert not conditional_before("If n is even, then so is its square, so the answer is", "5")


def test_a_gold_answer_with_the_letter_of_a_condition_may_mean_it() -> None:
    assert conditional_within(r"4\text{ if }n\text{ is even}", "4")
    assert not conditional_within(r"4\text{ if }n\text{ is even}", "3+(-1)^n")
    assert not conditional_within(r"4\text{ if }n\text{ is even}", r"4\text{ for even }n")
