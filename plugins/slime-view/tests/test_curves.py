"""Curves: the columns do not depend on where the reads of a growing file end, and are rebuilt if it shrinks."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import RunFolderError
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_view.curves import Curves
from tests.tables import table

ROWS = [MetricsRow(number, number + 1, 100.0 + number, {"a": float(number)}) for number in range(5)]


def log(path: Path, *rows: MetricsRow) -> None:
    with MetricsLog(path) as made:
        for row in rows:
            made.append(row)


@given(cuts=st.lists(st.integers(0, 400)), after=st.integers(0, 6))
def test_curves_do_not_depend_on_how_a_file_grows(cuts: list[int], after: int) -> None:
    with TemporaryDirectory() as folder:
        whole, growing = Path(folder, "whole.jsonl"), Path(folder, "growing.jsonl")
        log(whole, *ROWS, MetricsRow(5, 6, 105.0, {"b": 0.5}))
        data, curves = whole.read_bytes(), Curves(growing)
        for begin, end in pairwise(sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})):
            with growing.open("ab") as file:
                file.write(data[begin:end])
            curves.refresh()
    values = list(range(5))[after:]
    wanted = {"a": {"x": values, "y": [float(each) for each in values]}}
    assert curves.after(after, ["a"]) == {"generation": 0, "rows": 6, "metrics": wanted}
    assert sorted(curves.columns) == ["a", "b"]


def test_truncated_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log(path, *ROWS[:3])
    curves = Curves(path)
    curves.refresh()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    log(path, *(MetricsRow(row.rollout_id, row.step, row.time, {"a": 9.0}) for row in ROWS[1:]))
    curves.refresh()
    assert curves.generation == 1
    assert curves.after(0, ["a"])["metrics"] == {"a": {"x": [0, 1, 2, 3, 4], "y": [0.0, 9.0, 9.0, 9.0, 9.0]}}


@table("line", [b"{", b"[]", b'{"rollout_id": 1, "time": 2, "metrics": {"a": "x"}}'])
def test_a_damaged_row_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"rollout_id": 1, "time": 2, "metrics": {}}\n' + line + b"\n")
    with pytest.raises(RunFolderError, match=r"row 2 is not a metrics row"):
        Curves(path).refresh()
