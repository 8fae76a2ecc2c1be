"""Responses as language models end them, of fifteen kinds of answers, with their verdicts.

Each file of `data/` was written by somebody who had seen neither the grader nor its tests, and graded once before any
of it was looked at; the first sights stand in the README. A line is class, gold, response, whether that is right, and,
of a multiple choice, the choices by letter.
"""

import json
from pathlib import Path

import pytest

from slime_reward_math import grade
from slime_reward_math.choice import chosen_letter

DATA = Path(__file__).with_name("data")
FILES = ("models_first.jsonl", "models_second.jsonl")
MISSED = {
    "So $x$ is one of $\\boxed{2, -2}$.": "`one of` before a list is taken for a hedge",
    "Hence $m$ ranges over $\\boxed{[2,\\infty)}$.": "`over` is taken for a division",
}
"""How responses end whose verdict is still other than their author's, and why."""
Row = dict[str, object]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def paid(row: Row) -> bool:
    gold, response, choices = str(row["gold"]), str(row["response"]), row.get("choices")
    if isinstance(choices, dict):
        return chosen_letter(response, "".join(choices), tuple(choices.values())) == gold
    return grade(gold, response).correct


@pytest.mark.parametrize("name", FILES)
def test_the_verdicts_are_right(name: str) -> None:
    wrong = [row for row in rows(name) if paid(row) != row["right"]]
    assert [row for row in wrong if not str(row["response"]).endswith(tuple(MISSED))] == []


def test_what_is_said_to_be_missed_is_missed() -> None:
    every = [row for name in FILES for row in rows(name)]
    for ending in MISSED:
        [row] = [each for each in every if str(each["response"]).endswith(ending)]
        assert paid(row) != row["right"]
