"""Resumes: a line each time a run is continued."""

import time
from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.run.resume import note_resume
from slime_view.ledger_view import read_resumes
from tests.tables import table


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    began = time.time()
    assert read_resumes(tmp_path) == []
    for rollouts in (4, 4, 9):
        note_resume(tmp_path, rollouts)
    found = read_resumes(tmp_path)
    assert [each.rollout_id for each in found] == [4, 4, 9]
    assert all(began <= each.time <= time.time() for each in found)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    note_resume(tmp_path, 4)
    with (tmp_path / "resumes.jsonl").open("a") as file:
        file.write('{"rollout_id"')
    assert [each.rollout_id for each in read_resumes(tmp_path)] == [4]


@table("line", ["{}", "4", "[", '{"rollout_id": "x", "time": 1}'])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "resumes.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunFolderError, match="line 1 does not say where the run was continued"):
        read_resumes(tmp_path)
