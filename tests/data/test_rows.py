"""read_rows: every row of a file or a slice of it, and an error with file and line for a bad one."""

import json
import os
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data import read_rows
from slime_core.data.rows import scan_rows
from slime_core.errors import DataError
from tests.tables import table

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=8)


def values(path: Path) -> list[object]:
    return [row.values for row in read_rows(path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module", params=["jsonl", "parquet"])
def ten(folder: Path, request: pytest.FixtureRequest) -> Path:
    """Ten rows {"n": 0..9} in either format."""
    path = folder / f"ten.{request.param}"
    if request.param == "jsonl":
        path.write_text("\n\n".join(json.dumps({"n": n}) for n in range(10)))
    else:
        pq.write_table(pa.table({"n": list(range(10))}), path, row_group_size=3)
    return path


@given(rows=ROWS)
def test_what_was_written_is_read(folder: Path, rows: list[dict[str, object]]) -> None:
    path = folder / "round.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8", newline="")
    assert values(path) == rows


@given(start=st.none() | st.integers(-12, 12), stop=st.none() | st.integers(-12, 12))
def test_a_slice_is_pythons_slice(ten: Path, start: int | None, stop: int | None) -> None:
    bounds = f"{'' if start is None else start}:{'' if stop is None else stop}"
    assert values(Path(f"{ten}@[{bounds}]")) == [{"n": n} for n in range(10)[start:stop]]


def test_a_byte_order_mark_blank_lines_and_what_is_outside_a_slice_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('not json\n{"n": 1}\nnot json\n')
    assert values(Path(f"{path}@[1:2]")) == [{"n": 1}]
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\r\n   \n{"n": 2}')
    assert values(path) == [{"n": 1}, {"n": 2}]


@table(
    "line, says",
    [
        (b'{"n": 1', "not JSON"),
        (b"[1, 2]", "expected a JSON object, got the beginning of an array: write one object per line"),
        (b"[", "expected a JSON object, got the beginning of an array"),
        (b"5", "expected a JSON object like .*, got 5"),
        (b'{"n": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears twice: {"),
        (b'{"n": "\xff"}', "not UTF-8"),
        (rb'{"n": "\ud83d!"}', "half of a surrogate pair"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 0}\n\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"rows\.jsonl:3: .*{says}"):
        values(path)


def test_a_pair_of_surrogates_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rb'{"n": "\uD83D\uDE00"}')
    assert values(tmp_path / "rows.jsonl") == [{"n": "\N{GRINNING FACE}"}]


@table(
    "name, says",
    [
        ("trian.jsonl", r"no prompt file .*trian\.jsonl; .* holds damaged\.parquet, pipe\.jsonl, train\.jsonl"),
        (".", r"is a directory: give a \.jsonl or \.parquet file"),
        ("nowhere/train.jsonl", "nor is there the directory"),
        ("pipe.jsonl", r"pipe\.jsonl is a pipe, a socket or a device: give a \.jsonl"),
        ("rows.csv", r"end in \.jsonl or \.parquet, not in '\.csv'"),
        ("rows", r"end in \.jsonl or \.parquet, not in 'nothing'"),
        ("damaged.parquet", r"damaged\.parquet: not a readable parquet file"),
    ],
)
def test_what_is_no_prompt_file_is_named(tmp_path: Path, name: str, says: str) -> None:
    for each in ("train.jsonl", "rows.csv", "rows"):
        (tmp_path / each).touch()
    if not (tmp_path / "pipe.jsonl").exists():
        os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match=says):
        values(tmp_path / name)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="needs pyarrow: pip install pyarrow"):
        values(tmp_path / "rows.parquet")


def thirty() -> pa.Table:
    return pa.table({"n": list(range(30)), "text": [str(n) for n in range(30)], "meta": [{"a": n} for n in range(30)]})


def test_rows_of_columns_are_named_by_their_numbers_and_only_wanted_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "thirty.parquet"
    pq.write_table(thirty(), path, row_group_size=7)
    assert [row.where for row in read_rows(Path(f"{path}@[5:9]"))] == [f"{path}, row {n}" for n in range(5, 9)]
    assert next(scan_rows(path, ["n"], ["meta", "absent"]))[1] == {"n": 0, "meta": {"a": 0}}
    assert next(scan_rows(path, ["n", "absent"]))[1] == {"n": 0, "text": "0", "meta": {"a": 0}}


@table("kind", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    """40 MB of text read in the room of a few batches, Arrow's own memory counted."""
    path, count, text = tmp_path / f"rows.{kind}", 20_000, "x" * 2_000
    if kind == "jsonl":
        with path.open("w") as file:
            file.writelines(json.dumps({"input": text + str(n)}) + "\n" for n in range(count))
    else:
        table = pa.table({"input": [text + str(n) for n in range(count)]})
        pq.write_table(table, path, row_group_size=count, compression="none", use_dictionary=False)
        del table
    before, most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    for number, _ in enumerate(read_rows(path)):
        if number % 500 == 0:
            most = max(most, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most + peak < 14e6
