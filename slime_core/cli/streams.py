"""Standard streams that never raise: a closed terminal, a full disk or a narrow encoding must not end a command.

Example:

    protect_output()                 # before anything prints; `sys.stdout` and `sys.stderr` are replaced
"""

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def protect_output() -> None:
    """Drop what standard output and standard error cannot take; escape what their encoding cannot print."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Without this, the next file that the run opens gets the number, and what is printed lands in it.
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    sys.stdout, sys.stderr = _protected(sys.stdout, 1), _protected(sys.stderr, 2)


def _protected(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:  # closed when Python started
        return _text(descriptor, None, line_buffering=False, write_through=False)
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream  # a buffer in memory
    with suppress(OSError):
        stream.flush()
    return _text(
        descriptor,
        stream.encoding,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def _text(descriptor: int, encoding: str | None, *, line_buffering: bool, write_through: bool) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Sink(descriptor, "w", closefd=False)),
        encoding,
        "backslashreplace",
        line_buffering=line_buffering,
        write_through=write_through,
    )


class _Sink(io.FileIO):
    """Accepts all that is written, so that no layer above fails, not even the last flush as Python ends."""

    _failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        size = memoryview(data).nbytes
        try:
            while (written := super().write(data)) is None:  # another process made the terminal non-blocking
                select.select([], [self], [])
        except OSError as error:
            self._report(error)
            return size
        return written

    def _report(self, error: OSError) -> None:
        if not self._failed and self.fileno() == 1 and error.errno != errno.EPIPE:  # `| head` has read enough
            with suppress(OSError):
                os.write(2, f"warning: standard output is lost, it cannot be written: {error.strerror}\n".encode())
        self._failed = True
