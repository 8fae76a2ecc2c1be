"""Processes of this machine, as /proc has them."""

from pathlib import Path


def processes() -> list[int]:
    """All of them."""
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def output(pid: int) -> Path | None:
    """What one prints to; None of one that is over."""
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None


def name(pid: int) -> str:
    """Of its program; empty of one that is over."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    """Who has started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
