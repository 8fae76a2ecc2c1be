"""Turns an operating system's refusal into an error of the run folder that names the file.

with run_folder_errors(path, "write"):
    path.write_text(text)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slime_core.errors import RunFolderError


@contextmanager
def run_folder_errors(path: Path, verb: str) -> Iterator[None]:
    """Raise RunFolderError instead of OSError."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot {verb} {path}: {error.strerror or error}. The run folder must be writable and have room; "
            "free some, or name another folder with --save."
        ) from error
