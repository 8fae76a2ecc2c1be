"""Rows of a prompt file: .jsonl, .parquet, a directory saved by HF `datasets`, or a slice of one:
`train.jsonl@[100:200]`, `train.parquet@[-50:]`. Read as a stream, in memory that does not grow with the file.

A bad row comes as a `BadRow` with file and line; nothing is skipped silently but blank lines.
"""

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from slime_core.errors import DataError
from slime_core.sample import Json

_SLICE = re.compile(r"(?P<file>.*)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]", re.DOTALL)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row."""

    where: str
    """File and line, for error texts."""
    values: dict[str, Json]
    """The row by column."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    why: str
    """File, line, and what is wrong."""


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
    from slime_core.data import arrow

    file, start, stop = split_slice(path)
    if arrow.is_saved_dataset(file):
        yield from arrow.saved_rows(file, start, stop, needed, optional)
    elif not file.is_file():
        raise DataError(_no_file(file))
    elif file.suffix == ".jsonl":
        yield from _jsonl_rows(file, start, stop)
    elif file.suffix == ".parquet":
        yield from arrow.parquet_rows(file, start, stop, needed, optional)
    else:
        raise DataError(f"{file}: prompt files end in .jsonl or .parquet, not in {file.suffix or 'nothing'!r}")


def split_slice(path: Path) -> tuple[Path, int | None, int | None]:
    """The file of `file@[start:stop]`, and its bounds."""
    match = _SLICE.fullmatch(str(path))
    if match is None:
        return path, None, None
    start, stop = (int(match[bound]) if match[bound] else None for bound in ("start", "stop"))
    return Path(match["file"]), start, stop


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


def _jsonl_rows(file: Path, start: int | None, stop: int | None) -> Iterator[Row | BadRow]:
    if (start or 0) < 0 or (stop or 0) < 0:
        start, stop, _ = slice(start, stop).indices(sum(1 for _ in _jsonl_lines(file)))
    for number, line in islice(_jsonl_lines(file), start, stop):
        yield _parse(f"{file}:{number}", line)


def _jsonl_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            if not text.isspace() and text:
                yield number, text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _each_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return table


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_each_once)
"""One for all rows: `json.loads` makes a new one for every call with an argument, which doubles its time."""


def _parse(where: str, line: bytes) -> Row | BadRow:
    try:
        values = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return BadRow(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)")
    except ValueError as error:
        problem = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        return BadRow(f"{where}: {problem}: {_shorten(line.decode())}")
    except RecursionError:
        return BadRow(f"{where}: nested too deeply")
    if not isinstance(values, dict):
        return BadRow(f'{where}: expected a JSON object like {{"input": ...}}, got {_shorten(line.decode())}')
    return Row(where, values)


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:57]}..."
