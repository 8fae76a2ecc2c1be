r"""What stands beside an answer and is not a sentence of its own: hedges, equations that a box opens, small talk.

`data/beside.tsv` holds class, gold, response and verdict, right and wrong ones of each class; behind the first
three classes those of 150 pairs of other kinds, which were written before they were graded.
"""

from pathlib import Path

import pytest

from slime_reward_math import compare, grade
from slime_reward_math.context.around import equated
from slime_reward_math.context.formula import equation

DATA = Path(__file__).with_name("data") / "beside.tsv"
ROWS = [line.split("\t") for line in DATA.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("kind", "gold", "response", "verdict"), ROWS)
def test_what_stands_beside_an_answer_is_read(kind: str, gold: str, response: str, verdict: str) -> None:
    assert grade(gold, response, phrases=True).correct is (verdict == "correct"), kind


def test_every_class_has_right_and_wrong_ones() -> None:
    for kind in {row[0] for row in ROWS}:
        assert {row[3] for row in ROWS if row[0] == kind} == {"correct", "wrong"}


def test_a_box_opens_an_equation_only_if_it_has_a_name() -> None:
    assert equation(" = 12$. So", "S") == ("S=12", ". So")
    assert equation(" = 12$", "5") is None
    assert equation("$ and 12", "S") is None
    assert equated(" = 12$ if n is even", "S") is None


@pytest.mark.parametrize(
    "hedge", ["\\approx %s", "\\text{about }%s", "\\text{roughly }%s", "%s\\text{ (approximately)}"]
)
def test_a_hedge_never_pays_what_is_not_paid_without_it(hedge: str) -> None:
    values = [f"{whole}{part}" for whole in ("4", "5", "-5", "50") for part in ("", ".1", ".01", ".0001", "/2", "\\pi")]
    for gold, value in ((gold, value) for gold in (*values, "\\frac{1}{3}", "\\sqrt{26}") for value in values):
        assert compare(gold, hedge % value).correct is compare(gold, value).correct, (gold, value)
