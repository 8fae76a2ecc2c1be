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
from tests.tables import table

PAGE = Path(__file__).parent.parent / "POLICY.md"
EXAMPLE = re.compile(r"- `(.+?)` (←|in) `(.+)`: (correct|wrong)")


def examples() -> list[tuple[str, str, str, str]]:
    return [match.groups() for line in PAGE.read_text("utf-8").splitlines() if (match := EXAMPLE.fullmatch(line))]


@table("gold, how, answer, verdict", examples())
def test_policy_examples_hold(gold: str, how: str, answer: str, verdict: str) -> None:
    found = compare(gold, answer) if how == "←" else grade(gold, answer)
    assert found.outcome is Outcome(verdict), found


def test_every_list_item_of_the_policy_is_an_example() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) == len(examples()) > 100


def verdicts() -> Iterator[Outcome]:
    forget()
    for gold, how, answer, _ in examples():
        yield (compare(gold, answer) if how == "←" else grade(gold, answer)).outcome


def changes(owner: object, name: str, mutant: object) -> bool:
    """Whether some example's verdict changes with a mutant in place."""
    expected = [Outcome(verdict) for *_, verdict in examples()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, mutant)
        changed = any(one is not two for one, two in zip(verdicts(), expected, strict=True))
    forget()
    return changed


def replaced(rule: int, mutant: object) -> tuple[object, ...]:
    return tuple(mutant if place == rule else each for place, each in enumerate(matcher.RULES))


@table("rule", range(len(matcher.RULES)))
def test_every_rule_of_the_matcher_decides_some_example(rule: int) -> None:
    assert changes(matcher, "RULES", replaced(rule, lambda self, gold, answer: True))
    assert changes(matcher, "RULES", replaced(rule, lambda self, gold, answer: False))


@table("name", ["any_order", "in_order", "same_region"])
def test_a_helper_that_always_agrees_breaks_the_policy(name: str) -> None:
    assert changes(Matcher, name, lambda self, gold, answer: True)


@table("place", range(len(again.RULES)))
def test_every_second_look_decides_some_example(place: int) -> None:
    assert changes(again, "RULES", tuple(rule for at, rule in enumerate(again.RULES) if at != place))


def test_parameters_are_renamed_and_other_names_are_not() -> None:
    assert changes(again, "renamed", lambda gold, answer: iter(()))
    assert changes(again, "renamed", every_name_alike)


def every_name_alike(gold: Tree, answer: Tree) -> Iterator[Tree]:
    ours, theirs = symbols(gold), symbols(answer)
    yield rename(answer, dict(zip(theirs, ours, strict=False)))
