"""Files of a run folder, opened without following links: a folder that was downloaded may hold a link to any file.

The run folder itself may be a link; nothing inside may lead out of it. A reader says how many names of a path lie
inside the folder.

Example:

    with open_nofollow(run / "metrics.jsonl") as file: ...
    parquet.ParquetFile(nofollow(run / "samples" / name, 2))
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slime_core.errors import RunFolderError

__all__ = ["check_tree", "inside", "nofollow", "open_nofollow"]
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def nofollow(path: Path, depth: int = 1) -> Path:
    """Return the path if its last `depth` names are ordinary files and folders, or not there.

    Raises:
        RunFolderError: one is a link, a pipe, a socket or a device.
    """
    names = path.parts[-depth:]
    place = path
    for _ in names:
        with suppress(OSError, ValueError):  # one that is not there is for the reader to report
            _check(place, place.lstat().st_mode)
        place = place.parent
    return path


def open_nofollow(path: Path, depth: int = 1) -> BinaryIO:
    """Open an ordinary file for reading; its last `depth` names lie inside the run folder.

    Raises:
        RunFolderError: as `nofollow`, or it cannot be opened.
        FileNotFoundError: it is not there.
    """
    nofollow(path, depth)
    try:
        return open(path, "rb", opener=_open)  # Path.open takes no opener
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _open(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe that replaced the file since the check would never return.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def inside(path: Path, name: str) -> Path:
    """Return the path of a file of a folder, by a name that the folder itself gives.

    Raises:
        RunFolderError: the name is absolute or goes up; or as `nofollow`.
    """
    parts = Path(name).parts
    if not parts or "\0" in name or ".." in parts or Path(name).is_absolute():
        raise RunFolderError(f"{path} names a file outside itself, {name!r}: only files inside it are read")
    return nofollow(path / name, len(parts))


def check_tree(root: Path, skip: str = "") -> None:
    """Refuse a folder with a link that leads out of it, or with a pipe, socket or device; `skip` is left out.

    Raises:
        RunFolderError: names the first.
    """
    home = root.resolve()
    for path in _walk(root, skip):
        with suppress(OSError):  # removed meanwhile
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) or not _leads_into(path, home):
                _check(path, mode)


def _walk(root: Path, skip: str) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))
        if Path(folder) == root and skip in folders:
            folders.remove(skip)


def _leads_into(link: Path, home: Path) -> bool:
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a circle of links
        return False


def _check(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise RunFolderError(
            f"{path} is a link, and links inside a run folder are not followed: they may lead to any file. Put the "
            "file itself there, or remove the link; the run folder as a whole may be a link"
        )
    if (kind := _KINDS.get(stat.S_IFMT(mode))) is not None:
        raise RunFolderError(f"{path} is {kind}; a run folder holds files and folders alone. Remove it")
