"""What this process holds of the operating system: open files and the processes below it; leaks show as a difference.

Example:

    before = held()
    ...
    settled(lambda: held() - before)        # what is still held after a while: Held(), if nothing was left behind
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SETTLE_S = 2.0
"""How long what was told to end may take to be gone."""
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Held:
    """Open file descriptors and living processes."""

    files: frozenset[str] = frozenset()
    """Number and target of each descriptor: "7 -> socket:[4711]"."""
    processes: frozenset[int] = frozenset()
    """Ids of children, and of theirs where the system can tell."""

    def __sub__(self, earlier: "Held") -> "Held":
        return Held(self.files - earlier.files, self.processes - earlier.processes)

    def __bool__(self) -> bool:
        return bool(self.files or self.processes)

    def told(self) -> str:
        """What is held, as an error says it: "process 4711, file 7 -> socket:[1]"."""
        parts = [f"process {pid}" for pid in sorted(self.processes)] + [f"file {each}" for each in sorted(self.files)]
        return ", ".join(parts) or "nothing"


def held() -> Held:
    """Open descriptors and living descendants of this process now."""
    return Held(frozenset(_files()), frozenset(_below(os.getpid()) if PROC.is_dir() else _children()))


def settled(left: Callable[[], Held]) -> Held:
    """What `left` still finds when it finds nothing any more, or when `SETTLE_S` is over."""
    until = time.monotonic() + SETTLE_S
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _files() -> list[str]:
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  # numbers, not paths
        try:
            found.append(f"{name} -> {os.readlink(f'/dev/fd/{name}')}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor that listed the folder
    return found


def _children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def _below(root: int) -> set[int]:
    parents = {}
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            try:
                state, parent, *_ = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level}:
        found |= level
    return found
