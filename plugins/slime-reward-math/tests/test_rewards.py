import subprocess
import sys
from collections.abc import Callable

import pytest

from slime_core import Score, Unscored
from slime_reward_math.plugin import slime_rewards
from tests.tables import table

NAMES = ["math", "deepscaler", "dapo", "gpqa", "f1", "ifbench", "random", "remote_rm", "format"]


def test_all_slime_reward_names_exist() -> None:
    assert sorted(spec.name for spec in slime_rewards()) == sorted([*NAMES, *(f"boxed_{name}" for name in NAMES)])


@table(
    "name, label, response, value",
    [
        ("math", "1/2", r"\boxed{0.5}", 1.0),
        ("math", "1/2", r"\boxed{2}", 0.0),
        ("math", 0, r"\boxed{0}", 1.0),
        ("math", "4", "no box", 0.0),
        ("math", ["4", "5"], r"\boxed{5}", 1.0),
        ("boxed_math", "1/2", r"\boxed{0.5}", 1.0),
        ("deepscaler", "42", r"\boxed{99}</think>Final: \boxed{42}", 1.0),
        ("deepscaler", "42", r"Scratch \boxed{wrong}###Response\boxed{42}", 1.0),
        ("deepscaler", "42", r"\boxed{42}", 1.0),
        ("deepscaler", "42", r"<think>\boxed{42}", 0.0),
        ("boxed_deepscaler", "42", r"</think>\boxed{42}", 1.0),
        ("dapo", "34", "Answer: 34", 1.0),
        ("dapo", "34", "Answer: 34\n" + " filler" * 100, 1.0),
        ("dapo", "1/2", r"**Answer:** $\frac{1}{2}$", 1.0),
        ("dapo", "34", r"Answer: \boxed{34}", 1.0),
        ("dapo", "34", "just 34", -1.0),
        ("boxed_dapo", "34", r"\boxed{34}", 1.0),
        ("boxed_dapo", "34", r"\boxed{35}", -1.0),
        ("f1", "a quick brown fox", "the brown fox", 0.8),
        ("f1", "no", "some other phrase", 0.0),
        ("f1", "the", "the", 1.0),
        ("f1", "3.14", "314", 0.0),
        ("f1", ["red", "blue"], "blue", 1.0),
        ("f1", 7, "7", 1.0),
        ("f1", "北京", "北京市", 0.8),
        ("f1", "hello", "<think>Analysis</think>hello", 1.0),
        ("boxed_f1", "red fox", r"a very long story \boxed{red fox}", 1.0),
        ("format", "", r"<think>2+2</think> so \boxed{4}", 1.0),
        ("format", "", r"\boxed{4}", 1.0),
        ("format", "", "4", 0.0),
        ("format", "", r"<think>2+2 \boxed{4}", 0.0),
        ("boxed_format", "", r"</think></think>\boxed{4}", 0.0),
    ],
)
def test_rewards_of_responses(
    score: Callable[..., object], name: str, label: object, response: str, value: float
) -> None:
    found = score(name, label, response)
    assert isinstance(found, Score)
    assert found.value == pytest.approx(value)


@table("name", ["math", "deepscaler", "dapo", "f1", "gpqa", "boxed_math", "boxed_gpqa"])
@table("label", [None, "", []])
def test_a_row_without_a_gold_answer_is_unscored(score: Callable[..., object], name: str, label: object) -> None:
    assert isinstance(score(name, label, r"Answer: \boxed{A}"), Unscored)


def test_undecided_answer_is_unscored_with_a_reason(score: Callable[..., object]) -> None:
    found = score("math", r"\sum_{k=1}^{10^9} \frac{1}{k}", r"\boxed{21}")
    assert isinstance(found, Unscored)
    assert found.reason == "undecided"
    assert "too many terms" in found.detail


def test_timeout_is_unscored_and_retryable(score: Callable[..., object]) -> None:
    assert score("math", "x+1", r"\boxed{y+1}", deadline_s=1e-9) == Unscored(
        "timeout", retryable=True, detail="gold 'x+1'"
    )


def test_random_is_drawn_from_the_seed(score: Callable[..., object]) -> None:
    values = [score("random", "", "", seed=seed) for seed in range(40)]
    assert values == [score("boxed_random", "", "", seed=seed) for seed in range(40)]
    assert {each.value for each in values if isinstance(each, Score)} == {0.0, 1.0}


@table(
    "settings, response, value",
    [
        ({"box": False}, "4", 1.0),
        ({"think": "required"}, r"\boxed{4}", 0.0),
        ({"think": "required"}, r"<think>x</think>\boxed{4}", 1.0),
        ({"think": "forbidden"}, r"<think>x</think>\boxed{4}", 0.0),
        ({}, r"Hm. <think>x</think>\boxed{4}", 0.0),
        ({"box": False}, "<think>x</think> ", 0.0),
    ],
)
def test_format_follows_its_settings(
    score: Callable[..., object], settings: dict[str, object], response: str, value: float
) -> None:
    assert score("format", None, response, **settings) == Score(value)


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, slime_reward_math.plugin; print(*{'flint', 'numpy', 'torch', 'sympy', 'click'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
