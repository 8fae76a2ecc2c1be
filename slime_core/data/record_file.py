"""RecordFile: records written once, one after the other, and read back at random; memory is eight bytes a record.

The bytes lie in an unnamed temporary file (in TMPDIR), so that a data set may be larger than memory and any order of
its rows costs the same.

Example:

    records = RecordFile()
    with records:
        records.append(b"first")
    records[0]
"""

import os
import tempfile
import weakref
from array import array
from types import TracebackType

from slime_core.errors import DataError


class RecordFile:
    """Append inside `with`, read after it."""

    def __init__(self) -> None:
        """Nothing is in it."""
        self._ends = array("Q", [0])

    def __enter__(self) -> "RecordFile":
        """Make the file."""
        try:
            self._file = tempfile.TemporaryFile(prefix="slime-prompts-")  # closed by __exit__
        except OSError as error:
            raise _no_room(error) from None
        return self

    def append(self, record: bytes) -> None:
        """Write one record, at least one byte.

        Raises:
            DataError: the disk is full.
        """
        try:
            self._file.write(record)
        except OSError as error:
            raise _no_room(error) from None
        self._ends.append(self._ends[-1] + len(record))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file for writing; its descriptor stays until this object goes.

        Raises:
            DataError: the disk is full.
        """
        try:
            with self._file:
                self._file.flush()
                if error is None:
                    self._descriptor = os.dup(self._file.fileno())
                    weakref.finalize(self, os.close, self._descriptor)
        except OSError as refused:
            raise _no_room(refused) from error

    def __getitem__(self, number: int) -> bytes:
        # Not mmap: the first touch of each page takes three times as long, and its pages count as our memory.
        start = self._ends[number]
        return os.pread(self._descriptor, self._ends[number + 1] - start, start)

    def __len__(self) -> int:
        return len(self._ends) - 1


def _no_room(error: OSError) -> DataError:
    return DataError(
        f"the prompts do not fit into the temporary directory {tempfile.gettempdir()}: {error.strerror or error}; "
        "set TMPDIR to a directory with room"
    )
