import pytest

from slime_core.catalog import did_you_mean


@pytest.mark.parametrize("word", ["mth", "MATH", "maths", "math"])
def test_a_near_spelling_is_suggested(word: str) -> None:
    assert did_you_mean(word, ["random", "math"]) == " Did you mean 'math'?"


def test_hyphens_and_underscores_are_the_same() -> None:
    assert did_you_mean("policy-loss", ["policy_loss", "sft_loss"]) == " Did you mean 'policy_loss'?"


def test_among_names_that_differ_in_case_the_nearest_is_suggested() -> None:
    assert did_you_mean("shrt", ["Short", "short"]) == " Did you mean 'short'?"


@pytest.mark.parametrize("choices", [[], ["random"]])
def test_nothing_is_suggested_when_nothing_is_near(choices: list[str]) -> None:
    assert did_you_mean("math", choices) == ""
