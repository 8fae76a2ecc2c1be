"""Every row of `data/rows.jsonl`: bare answers, whole responses and choices, with their authors' verdicts.

A row holds batch, class, gold, response and whether that is right; `bare` marks an answer without a response around it,
`phrases` one that may state its answer in prose; `choices` are the texts of A, B, ... Each batch was written before it
was graded; the first sights stand in the README. `missed` says why a verdict is still other than its author wanted.
"""

import json
from pathlib import Path

import pytest

from slime_reward_math import compare, grade
from slime_reward_math.choice import chosen_letter

DATA = Path(__file__).with_name("data") / "rows.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
BATCHES = sorted({row["batch"] for row in ROWS})
Row = dict[str, object]


def paid(row: Row) -> bool:
    gold, response, choices = str(row["gold"]), str(row["response"]), row.get("choices")
    if isinstance(choices, list):
        return chosen_letter(response, "ABCDEFGHIJ"[: len(choices)], choices) == gold
    if "bare" in row:
        return compare(gold, response).correct
    return grade(gold, response, phrases="phrases" in row).correct


def test_row_counts_are_unchanged() -> None:
    assert len(ROWS) == 5_916
    assert sum("missed" in row for row in ROWS) == 27


@pytest.mark.parametrize("batch", BATCHES)
def test_rows_are_graded_as_labelled(batch: str) -> None:
    wrong = [row for row in ROWS if row["batch"] == batch and (paid(row) == row["right"]) is ("missed" in row)]
    assert wrong == []
