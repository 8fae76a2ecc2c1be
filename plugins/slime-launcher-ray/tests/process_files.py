"""Processes of this machine, read from /proc."""

from pathlib import Path


def processes() -> list[int]:
    """Ids of all processes."""
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def output(pid: int) -> Path | None:
    """File that a process prints to; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None


def name(pid: int) -> str:
    """Name of a process's program; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    """Id of the parent process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
