"""Every example of the policy page is a test, and every rule matters: turned off or on, some example changes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_reward_math import Outcome, compare, grade
from slime_reward_math.grader import forget
from slime_reward_math.match import again, matcher
from slime_reward_math.match.matcher import Matcher
from slime_reward_math.tree import Tree, rename, symbols

PAGE = Path(__file__).parent.parent / "POLICY.md"
EXAMPLE = re.compile(r"- `(.+?)` (←|in) `(.+)`: (correct|wrong)")
RULES = tuple(range(len(matcher.RULES)))
NAMES = [rule.__name__ for rule in matcher.RULES]


def examples() -> list[tuple[str, str, str, str]]:
    return [match.groups() for line in PAGE.read_text("utf-8").splitlines() if (match := EXAMPLE.fullmatch(line))]


@pytest.mark.parametrize(("gold", "how", "answer", "verdict"), examples())
def test_the_policy_says_what_the_grader_does(gold: str, how: str, answer: str, verdict: str) -> None:
    found = compare(gold, answer) if how == "←" else grade(gold, answer)
    assert found.outcome is Outcome(verdict), found


def test_the_page_has_no_line_that_looks_like_an_example_and_is_none() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) == len(examples()) > 100


def verdicts() -> Iterator[Outcome]:
    forget()
    for gold, how, answer, _ in examples():
        yield (compare(gold, answer) if how == "←" else grade(gold, answer)).outcome


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_that_always_agrees_breaks_the_policy(rule: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(verdicts())
    monkeypatch.setattr(matcher, "RULES", replaced(rule, lambda self, gold, answer: True))
    assert list(verdicts()) != expected
    forget()


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_that_never_agrees_breaks_the_policy(rule: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(verdicts())
    monkeypatch.setattr(matcher, "RULES", replaced(rule, lambda self, gold, answer: False))
    assert list(verdicts()) != expected
    forget()


def replaced(rule: int, mutant: object) -> tuple[object, ...]:
    return tuple(mutant if place == rule else each for place, each in enumerate(matcher.RULES))


@pytest.mark.parametrize("name", ["any_order", "in_order", "same_region"])
def test_a_helper_that_always_agrees_breaks_the_policy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(verdicts())
    monkeypatch.setattr(Matcher, name, lambda self, gold, answer: True)
    assert list(verdicts()) != expected
    forget()


@pytest.mark.parametrize("place", range(len(again.RULES)), ids=[rule.__name__ for rule, _ in again.RULES])
def test_a_second_look_that_is_not_taken_breaks_the_policy(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(verdicts())
    rules = tuple(rule for at, rule in enumerate(again.RULES) if at != place)
    monkeypatch.setattr(again, "RULES", rules)
    assert list(verdicts()) != expected
    forget()


def test_a_parameter_that_is_not_renamed_breaks_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(verdicts())
    monkeypatch.setattr(again, "renamed", lambda gold, answer: iter(()))
    assert list(verdicts()) != expected
    monkeypatch.setattr(again, "renamed", every_name_alike)
    assert list(verdicts()) != expected
    forget()


def every_name_alike(gold: Tree, answer: Tree) -> Iterator[Tree]:
    ours, theirs = symbols(gold), symbols(answer)
    yield rename(answer, dict(zip(theirs, ours, strict=False)))
