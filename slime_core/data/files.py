"""Rows of a prompt file: .jsonl, .parquet, a directory saved by HF `datasets`, or a slice of one:
`train.jsonl@[100:200]`, `train.parquet@[-50:]`. Read as a stream, in memory that does not grow with the file.

A bad row comes as a `BadRow` with file and line; nothing is skipped silently but blank lines.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from slime_core.data import arrow
from slime_core.data.rows import BadRow, Row, jsonl_rows, split_slice
from slime_core.errors import DataError


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file or of `file@[start:stop]`, in order; a slice counts rows as Python does.

    Raises:
        DataError: as of `scan_rows`; or a row is bad.
    """
    for row in scan_rows(path):
        if isinstance(row, BadRow):
            raise DataError(row.why)
        yield row


def scan_rows(path: Path, needed: Collection[str] = (), optional: Collection[str] = ()) -> Iterator[Row | BadRow]:
    """The same, bad rows in their places.

    Args:
        path: the file or the slice.
        needed: columns that are wanted; where one does not exist, all are read, so that an error can name them.
        optional: columns that are read where they exist; without `needed`, every column is read.

    Raises:
        DataError: no such file, an unknown ending, a damaged file.
    """
    file, start, stop = split_slice(path)
    if arrow.is_saved_dataset(file):
        yield from arrow.saved_rows(file, start, stop, needed, optional)
    elif not file.is_file():
        raise DataError(_no_file(file))
    elif file.suffix == ".jsonl":
        yield from jsonl_rows(file, start, stop)
    elif file.suffix == ".parquet":
        yield from arrow.parquet_rows(file, start, stop, needed, optional)
    else:
        raise DataError(f"{file}: prompt files end in .jsonl or .parquet, not in {file.suffix or 'nothing'!r}")


def _no_file(file: Path) -> str:
    if (file / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(each.name for each in file.iterdir() if each.is_dir()))
        return f"{file} holds the splits {splits}: give one of them, {file}/SPLIT"
    if file.is_dir():
        return f"{file} is a directory; give one .jsonl or .parquet file, or what `save_to_disk` of HF datasets wrote"
    if not file.parent.is_dir():
        return f"there is no prompt file {file}: not even the directory {file.parent.absolute()}"
    if file.exists():
        return f"{file} is a pipe, a socket or a device: give a file, which is read more than once"
    near = sorted(each.name for each in file.parent.iterdir() if each.suffix in (".jsonl", ".parquet"))
    return f"there is no prompt file {file}; {file.parent} holds {', '.join(near[:8]) or 'no .jsonl or .parquet file'}"
