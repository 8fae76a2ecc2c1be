"""Checks of folders: room for runs, and what killed runs left behind."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from slime_core.roles import Finding, Health

GIB = 2**30
LITTLE_ROOM_GIB = 5
"""Three checkpoints of 100 million weights at 16 bytes each: the model, exact weights and two moments in fp32."""


def room() -> Finding:
    """Looks whether the disk under runs/ has room, and whether this user may write there."""
    folder = _nearest(Path("runs"))
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free in {folder.resolve()}"
    if not os.access(folder, os.W_OK):
        return Finding(Health.WARNING, f"{folder.resolve()} is read-only for this user", "give runs another --save")
    if free < LITTLE_ROOM_GIB * GIB:
        return Finding(Health.WARNING, text, "a checkpoint that does not fit ends the run: make room, or give --save")
    return Finding(Health.OK, text)


def _nearest(folder: Path) -> Path:
    """The folder, or the one above it that exists."""
    return folder if folder.is_dir() else Path()


def leftovers() -> Finding:
    """Looks below runs/ for scratch files of runs that no process holds any more: weights, after a kill."""
    left = list(_left_behind(Path("runs")))
    if not left:
        return Finding(Health.OK, "no killed run left scratch files below runs/")
    size = sum(each.stat().st_size for scratch in left for each in scratch.rglob("*") if each.is_file())
    text = f"{size / 2**20:.1f} MiB in {', '.join(map(str, left))}, of runs that were killed"
    advice = "resume them with `slime resume`, which clears up, or let `slime doctor --fix` remove these files"
    return Finding(Health.WARNING, text, advice, partial(_clear, left))


def _left_behind(runs: Path) -> Iterator[Path]:
    for lock in sorted(runs.glob("*/lock")):
        scratch = lock.parent / "scratch"
        if scratch.is_dir() and any(scratch.iterdir()) and not _held(lock):
            yield scratch


def _held(lock: Path) -> bool:
    """Whether a process runs in the folder; the system releases the lock of one that died."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _clear(scratches: list[Path]) -> str:
    done = []
    for scratch in scratches:
        with (scratch.parent / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a run may have started since
            shutil.rmtree(scratch)
        done.append(str(scratch))
    return f"removed {', '.join(done)}"
