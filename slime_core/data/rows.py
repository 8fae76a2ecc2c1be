"""Rows of a prompt file: .jsonl or .parquet, or a slice of one: `train.jsonl@[100:200]`, `train.jsonl@[-50:]`.

A bad row is an error that names file and line; nothing is skipped silently but blank lines.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from slime_core.errors import DataError
from slime_core.sample import Json

_SLICE = re.compile(r"(?P<file>.*)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]", re.DOTALL)
T = TypeVar("T")


class Row(NamedTuple):
    """One row."""

    where: str
    """File and line, for error texts."""
    values: dict[str, Json]
    """The row by column."""


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file or of `file@[start:stop]`, in order; a slice counts rows as Python does.

    Raises:
        DataError: no such file, an unknown ending, a row that is no JSON object, a damaged file.
    """
    match = _SLICE.fullmatch(str(path))
    file = Path(match["file"]) if match else path
    start = int(match["start"]) if match and match["start"] else None
    stop = int(match["stop"]) if match and match["stop"] else None
    if not file.is_file():
        raise DataError(_no_file(file))
    match file.suffix:
        case ".jsonl":
            yield from (_parse(file, line, text) for line, text in _cut(_jsonl_lines(file), start, stop))
        case ".parquet":
            for number, values in _cut(enumerate(_parquet_rows(file)), start, stop):
                yield Row(f"{file}, row {number}", values)
        case suffix:
            raise DataError(f"{file}: prompt files end in .jsonl or .parquet, not in {suffix or 'nothing'!r}")


def _no_file(file: Path) -> str:
    if file.is_dir():
        return f"{file} is a directory; give one .jsonl or .parquet file"
    if not file.parent.is_dir():
        return f"there is no prompt file {file}: not even the directory {file.parent}"
    near = sorted(each.name for each in file.parent.iterdir() if each.suffix in (".jsonl", ".parquet"))
    return f"there is no prompt file {file}; {file.parent} holds {', '.join(near[:8]) or 'no .jsonl or .parquet file'}"


def _cut(items: Iterator[T], start: int | None, stop: int | None) -> Iterator[T]:
    """A Python slice of an iterator; only negative bounds need all of it."""
    if (start or 0) < 0 or (stop or 0) < 0:
        yield from list(items)[start:stop]
    else:
        yield from islice(items, start, stop)


def _jsonl_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.isspace() and text:
                yield number, text


def _parse(file: Path, line: int, text: bytes) -> Row:
    where = f"{file}:{line}"
    try:
        values = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
    except ValueError as error:
        raise DataError(f"{where}: not JSON: {error}: {_shorten(text.decode())}") from None
    except RecursionError:
        raise DataError(f"{where}: nested too deeply") from None
    if not isinstance(values, dict):
        raise DataError(f'{where}: expected a JSON object like {{"input": ...}}, got {_shorten(text.decode())}')
    return Row(where, values)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _parquet_rows(file: Path) -> Iterator[dict[str, Json]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"reading {file} needs pyarrow: pip install pyarrow") from None
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{file}: no readable parquet file: {error}") from None
