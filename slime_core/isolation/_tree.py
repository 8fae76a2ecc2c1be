"""The processes that a process has started, theirs included, as Linux's /proc knows them; elsewhere none are seen."""

import os
import signal
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_SEEN = 1_000
"""Processes after which looking for more is given up."""


def descendants(pid: int) -> list[int]:
    """Running descendants of a process, parents before children."""
    found: list[int] = []
    unseen = [pid]
    while unseen and len(found) < MOST_SEEN:
        children = _children(unseen.pop())
        found += children
        unseen += children
    return found


def end_descendants(pid: int) -> None:
    """Kill what a process has started, as far as it can still be found."""
    for each in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)
    return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found
