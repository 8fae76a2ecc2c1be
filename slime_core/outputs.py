"""Decides where a run or a command may write, and opens files of a run folder without following links.

`refuse_occupied` checks every key and option that names an output path. A run replaces only files that it made,
which carry its id. A downloaded run folder may contain links to any file; `open_nofollow` refuses them.

Example:

    refuse_occupied("save_hf = 'models/first'", "models/first", run_id_of(run))     # absent, empty or of this run
    mark_made(directory, run_id_of(run))                                            # now it is of this run
    with open_nofollow(run / "metrics.jsonl") as file: ...
"""

import glob
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from string import Formatter
from typing import BinaryIO

from slime_core.errors import ConfigError, RunFolderError

__all__ = [
    "check_tree",
    "claim_run_folder",
    "inside",
    "is_run_folder",
    "nofollow",
    "open_nofollow",
    "refuse_occupied",
]


RUN_MARK = ".slime-run"
"""File in a run folder that contains the run's id."""
MADE_MARK = ".slime-made"
"""File with the id of the run that made a directory."""


def real(path: Path | str) -> Path:
    """An absolute path without links."""
    return Path(os.path.realpath(path))


def refuse_occupied(what: str, path: Path | str, run_id: str = "") -> None:
    """Check that writing to a path loses nothing: it is absent, empty, a device, or made by the run with this id.

    Args:
        what: the key or option with its value, for the error.
        path: a file or a directory; links are followed.
        run_id: id of the run that writes there; empty for a command.

    Raises:
        ConfigError: the path holds anything else.
    """
    place = real(path)
    if place in (real(""), real(os.path.expanduser("~")), Path(place.anchor)):  # noqa: PTH111  # "~" without a home
        raise ConfigError(f"{what} is {place}, where other files belong, too. Give a folder that does not exist yet")
    if os.path.isfile(place) and os.path.getsize(place):  # noqa: PTH113, PTH202  # pathlib raises on what it may not see
        raise ConfigError(f"{what}: {place} is a file that is there already. Give another path, or move the file away")
    if not os.path.isdir(place) or (run_id and _text(place / MADE_MARK) == run_id):  # noqa: PTH112
        return
    try:
        inside = sorted(os.listdir(place))[:1]  # noqa: PTH208
    except OSError as error:
        raise ConfigError(f"{what}: {place} cannot be read: {error.strerror}. Give another folder") from None
    if inside:
        raise ConfigError(
            f"{what}: {place} is there already, with {inside[0]!r} in it, and this run did not make it. Give a folder "
            "that is empty or does not exist yet, or move this one away. An earlier run continues with `slime resume`"
        )


def refuse_unwritable(what: str, path: Path | str) -> None:
    """Check that a file and its parent folders can be created; leaves nothing behind.

    Raises:
        ConfigError: a parent is a file, or this user may not write there.
    """
    place = real(path)
    there = next(each for each in (place, *place.parents) if os.path.lexists(each))
    if not os.path.isdir(there):  # noqa: PTH112
        if there == place:
            return
        raise ConfigError(f"{what}: {there} is a file, so nothing can be made inside it. Give another path")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ConfigError(f"{what}: nothing can be written in {there}: {error.strerror}. Give another path") from None


def claim_run_folder(what: str, path: Path | str) -> None:
    """Create a run folder, or reuse the run's existing one.

    Raises:
        ConfigError: the folder holds anything else; see `refuse_occupied`.
        RunFolderError: the folder cannot be written.
    """
    place = real(path)
    if not is_run_folder(place):
        refuse_occupied(what, place)
    try:
        mark_run(place)
    except OSError as error:
        raise RunFolderError(f"cannot write {place}: {error.strerror}. Give another folder") from None


def is_run_folder(folder: Path) -> bool:
    """Whether a run was started in a folder."""
    if run_id_of(folder):
        return True
    try:
        names = set(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return False
    # A run that was killed before or while its id was written, or a run without an id.
    begun = bool(names) and names <= {"lock", RUN_MARK} and all((folder / name).is_file() for name in names)
    return begun or ("lock" in names and (folder / "checkpoints").is_dir())


def mark_run(folder: Path) -> None:
    """Create a run's folder and its id, unless they exist.

    Raises:
        OSError: it cannot be written.
    """
    if not run_id_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUN_MARK).unlink(missing_ok=True)  # a link would be followed
        with (folder / RUN_MARK).open("x", encoding="ascii") as file:
            file.write(uuid.uuid4().hex)


def run_id_of(folder: Path) -> str:
    """A run's id; empty before it has one."""
    return _text(folder / RUN_MARK)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def mark_made(directory: Path, run_id: str) -> None:
    """Record in a directory the id of the run that made it.

    Raises:
        OSError: it cannot be written.
    """
    (directory / MADE_MARK).write_text(run_id, "ascii")


def paths_matching(template: str) -> Iterable[Path]:
    """Existing paths that match a template with numbers in braces."""
    parts = [(text, name is not None) for text, name, *_ in Formatter().parse(str(Path(template)))]
    pattern = "".join(glob.escape(text) + "*" * number for text, number in parts)
    wanted = re.compile("".join(re.escape(text) + r"\d+" * number for text, number in parts))
    return [Path(each) for each in glob.glob(pattern) if wanted.fullmatch(each)]  # noqa: PTH207  # it may be absolute


def nofollow(path: Path, depth: int = 1) -> Path:
    """Return the path if its last `depth` parts are ordinary files and folders, or do not exist.

    Raises:
        RunFolderError: a part is a link, a pipe, a socket or a device.
    """
    for place in (path, *path.parents)[:depth]:
        with suppress(OSError, ValueError):  # one that is not there is for the reader to report
            _check(place, place.lstat().st_mode)
    return path


def open_nofollow(path: Path, depth: int = 1) -> BinaryIO:
    """Open an ordinary file for reading; its last `depth` parts lie inside the run folder.

    Raises:
        RunFolderError: as `nofollow`, or it cannot be opened.
        FileNotFoundError: the file does not exist.
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
    """Return the path of a file in a folder, by a name that the folder's content provides.

    Raises:
        RunFolderError: the name is absolute or contains `..`; or as `nofollow`.
    """
    parts = Path(name).parts
    if not parts or "\0" in name or ".." in parts or Path(name).is_absolute():
        raise RunFolderError(f"{path} names a file outside itself, {name!r}: only files inside it are read")
    return nofollow(path / name, len(parts))


def check_tree(root: Path, skip: str = "") -> None:
    """Reject a folder that contains a link out of it, a pipe, a socket or a device. `skip` is not checked.

    Raises:
        RunFolderError: names the first one.
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
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link, which may lead to any file" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
        raise RunFolderError(
            f"{path} is {what}: inside a run folder only files and folders are read. Put the file itself there, or "
            "remove it; the run folder as a whole may be a link"
        )
