"""RecordFile: records written once, one after the other, and read back at random; memory is eight bytes a record.

The bytes lie in an unnamed temporary file (in TMPDIR), so that a data set may be larger than memory and any order of
its rows costs the same.

Example:

    records = RecordFile()
    with records:
        records.append(b"first")
    records[0]
"""

import mmap
import tempfile
from array import array
from types import TracebackType

from slime_core.errors import DataError


class RecordFile:
    """Append inside `with`, read after it."""

    def __init__(self) -> None:
        """Nothing is in it."""
        self._ends = array("Q", [0])
        self._view: mmap.mmap | bytes = b""

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
        """Map what was written, and close the file.

        Raises:
            DataError: the disk is full.
        """
        try:
            with self._file:
                self._file.flush()
                if self._ends[-1]:
                    self._view = mmap.mmap(self._file.fileno(), self._ends[-1], access=mmap.ACCESS_READ)
        except OSError as refused:
            raise _no_room(refused) from error

    def __getitem__(self, number: int) -> bytes:
        return self._view[self._ends[number] : self._ends[number + 1]]

    def __len__(self) -> int:
        return len(self._ends) - 1


def _no_room(error: OSError) -> DataError:
    return DataError(
        f"the prompts do not fit into the temporary directory {tempfile.gettempdir()}: {error.strerror or error}; "
        "set TMPDIR to a directory with room"
    )
