"""Reading: some rows of a file of samples, of some columns, without the others.

Example:

    read_rows(path, [3, 17], ["group", "response"])
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import ArrowException, parquet

from slime_core.errors import RunFolderError
from slime_core.outputs import nofollow
from slime_core.sample import Json, Sample


@contextmanager
def opened(path: Path, dictionaries: Sequence[str] = ()) -> Iterator[parquet.ParquetFile]:
    """A file of samples.

    Raises:
        RunFolderError: it was deleted, is damaged, or is not one.
    """
    try:
        with parquet.ParquetFile(nofollow(path, 2), read_dictionary=list(dictionaries)) as file:
            yield file
    except FileNotFoundError:
        raise RunFolderError(f"{path} is not there any more: deleted, or the run was resumed before it") from None
    except (ArrowException, OSError, ValueError, KeyError) as error:
        raise RunFolderError(f"{path} is not a file of samples: {error}") from None


def read_rows(path: Path, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Json]]:
    """Rows by number, in the order asked for; only the parts of the file that have them are read.

    Raises:
        RunFolderError: as `opened`, or the file has fewer rows.
    """
    found: dict[int, dict[str, Json]] = {}
    with opened(path) as file:
        for part, first, wanted in _parts(file, rows):
            table = file.read_row_group(part, columns=list(columns), use_threads=False)
            local = [row - first for row in wanted]
            found.update(zip(wanted, table.take(pa.array(local, pa.int64())).to_pylist(), strict=True))
    if missing := [row for row in rows if row not in found]:
        raise RunFolderError(f"{path} has no row {missing[0]}")
    return [found[row] for row in rows]


def read_columns(path: Path, columns: Sequence[str]) -> list[dict[str, Json]]:
    """All rows, of some columns.

    Raises:
        RunFolderError: as `opened`.
    """
    with opened(path) as file:
        found: list[dict[str, Json]] = file.read(columns=list(columns), use_threads=False).to_pylist()
    return found


def prompt_of(sample: Sample) -> str:
    """The text of a prompt, of chat messages too."""
    if isinstance(sample.prompt, str):
        return sample.prompt
    return "\n\n".join(f"{each.get('role', '')}: {each.get('content', '')}" for each in sample.prompt)


def _parts(file: parquet.ParquetFile, rows: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    first = 0
    for part in range(file.num_row_groups):
        end = first + file.metadata.row_group(part).num_rows
        if wanted := sorted({row for row in rows if first <= row < end}):
            yield part, first, wanted
        first = end
