"""Rows of columnar files, batch after batch: .parquet by row groups, and what `save_to_disk` of HF `datasets` wrote.

Needs pyarrow, and nothing of `datasets`. At most one batch of rows is held.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.data.messages import JsonText
from slime_core.data.rows import BadRow, Row
from slime_core.errors import DataError
from slime_core.sample import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

BATCH_ROWS = 1024
"""Rows decoded at a time; 1,024 rows of 10 kB are 10 MB."""
JSON_TYPE = "extension<arrow.json>"
"""Arrow's name of the type of JSON texts."""
_READ_BYTES = 1 << 20
"""Bytes read of a column at a time; without it a row group's whole column is, and writers put up to 2^20 rows there."""


def parquet_rows(
    file: Path, start: int | None, stop: int | None, needed: Collection[str], optional: Collection[str]
) -> Iterator[Row | BadRow]:
    """Rows of a parquet file; row groups before the slice are not read.

    Raises:
        DataError: it is not a parquet file, or pyarrow is missing.
    """
    with _reading(file, "parquet file"):
        from pyarrow import parquet

        with parquet.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False) as table:
            begin, end, _ = slice(start, stop).indices(table.metadata.num_rows)
            groups, first = _groups_of(table, begin, end)
            columns = _columns(table.schema_arrow.names, needed, optional)
            batches = table.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns) if groups else iter(())
            yield from _cut(file, batches, first, begin, end)


def _groups_of(table: "parquet.ParquetFile", begin: int, end: int) -> tuple[list[int], int]:
    """Row groups that hold rows begin..end, and the number of the first row in them."""
    groups: list[int] = []
    first, row = begin, 0
    for group in range(table.metadata.num_row_groups):
        after = row + table.metadata.row_group(group).num_rows
        if row < end and after > begin:
            first = first if groups else row
            groups.append(group)
        row = after
    return groups, first


def is_saved_dataset(path: Path) -> bool:
    """Whether a directory is one data set, or one split, saved by HF `datasets`."""
    return (path / "dataset_info.json").is_file() and (path / "state.json").is_file()


def saved_rows(
    folder: Path, start: int | None, stop: int | None, needed: Collection[str], optional: Collection[str]
) -> Iterator[Row | BadRow]:
    """Rows of a directory saved by HF `datasets`.

    Raises:
        DataError: it is damaged, or pyarrow is missing.
    """
    with _reading(folder, "data set"):
        state = json.loads((folder / "state.json").read_text("utf-8"))
        files = [folder / each["filename"] for each in state["_data_files"]]
        if (start or 0) < 0 or (stop or 0) < 0:
            start, stop, _ = slice(start, stop).indices(sum(len(batch) for batch in _arrow_batches(files, (), ())))
        yield from _cut(folder, _arrow_batches(files, needed, optional), 0, start or 0, stop)


def _arrow_batches(files: list[Path], needed: Collection[str], optional: Collection[str]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for file in files:
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            columns = _columns(stream.schema.names, needed, optional)
            for batch in stream:
                yield batch if columns is None else batch.select(columns)


def _columns(names: Collection[str], needed: Collection[str], optional: Collection[str]) -> list[str] | None:
    """The columns to read; None for all. Of a dotted place within a column, the column."""
    needed = {each if each in names else each.partition(".")[0] for each in needed}
    if not needed or not needed <= set(names):
        return None
    wanted = {*needed, *optional}
    return [name for name in names if name in wanted]


def _cut(file: Path, batches: Iterator["pa.RecordBatch"], first: int, begin: int, end: int | None) -> Iterator[Row]:
    """Rows begin..end of batches whose first row has the number `first`."""
    for batch in batches:
        if end is not None and first >= end:
            return
        skip = max(0, begin - first)
        keep = len(batch) if end is None else min(len(batch), end - first)
        json_columns = {field.name: field.type for field in batch.schema if JSON_TYPE in str(field.type)}
        for low in range(skip, keep, BATCH_ROWS):  # a saved data set may be a single batch
            for offset, values in enumerate(batch.slice(low, min(BATCH_ROWS, keep - low)).to_pylist()):
                marked = {key: _mark_json(values[key], kind) for key, kind in json_columns.items()}
                yield Row(f"{file}, row {first + low + offset}", {**values, **marked}, is_arrow=True)
        first += len(batch)


def _mark_json(value: Json, kind: "pa.DataType") -> Json:
    """The value, each JSON text in it (the type Json of HF `datasets`) as a `JsonText`."""
    import pyarrow as pa

    if isinstance(value, str):
        return JsonText(value) if JSON_TYPE in str(kind) else value
    if isinstance(value, list) and isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return [_mark_json(each, kind.value_type) for each in value]
    if isinstance(value, dict) and isinstance(kind, pa.StructType):
        return {key: _mark_json(each, kind.field(key).type) for key, each in value.items()}
    return value


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        from pyarrow import ArrowException
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow: pip install pyarrow") from None
    try:
        yield
    except (ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: no readable {what}: {error}") from None
