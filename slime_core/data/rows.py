"""A row of a prompt file, good or bad; those of .jsonl; and what a slice of a file is called.

Example:

    split_slice(Path("train.jsonl@[100:200]"))                  # (Path("train.jsonl"), 100, 200)
    for row in jsonl_rows(Path("train.jsonl"), 100, 200):       # a Row, or a BadRow with file and line
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from slime_core.sample import Json

_SLICE = re.compile(r"(?P<file>.*)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]", re.DOTALL)
_ARRAY = "expected a JSON object, got the beginning of an array: write one object per line, in no brackets"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row."""

    where: str
    """File and line, for error texts."""
    values: dict[str, Json]
    """The row by column."""
    is_arrow: bool = False
    """Whether its objects are Arrow structs: each has the keys of all rows, null where the row has no such key."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    why: str
    """File, line, and what is wrong."""


class RejectedRow(BadRow):
    """A row that is well formed, but that the run cannot use. All of a file are counted before they are an error."""

    __slots__ = ()


def split_slice(path: Path) -> tuple[Path, int | None, int | None]:
    """The file of `file@[start:stop]`, and its bounds."""
    match = _SLICE.fullmatch(str(path))
    if match is None:
        return path, None, None
    start, stop = (int(match[bound]) if match[bound] else None for bound in ("start", "stop"))
    return Path(match["file"]), start, stop


def jsonl_rows(file: Path, start: int | None, stop: int | None) -> Iterator[Row | BadRow]:
    """The rows from `start` to before `stop`, counted as Python does; nothing is skipped but blank lines."""
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


def parse_json(text: str) -> Json:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, holds NaN or half of a surrogate pair, or names a key twice.
    """
    value: Json = _DECODER.decode(text)
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair, which is no character") from None
    return value


def _parse(where: str, line: bytes) -> Row | BadRow:
    try:
        values = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return BadRow(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)")
    except ValueError as error:
        if line.lstrip().startswith(b"["):
            return BadRow(f"{where}: {_ARRAY}")
        problem = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        return BadRow(f"{where}: {problem}: {_shorten(line.decode())}")
    except RecursionError:
        return BadRow(f"{where}: nested too deeply")
    if isinstance(values, list):
        return BadRow(f"{where}: {_ARRAY}")
    if not isinstance(values, dict):
        return BadRow(f'{where}: expected a JSON object like {{"input": ...}}, got {_shorten(line.decode())}')
    return Row(where, values)


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:57]}..."
