"""Examined: the checkpoints of a run as `slime checkpoints` lists them, and fewer of them.

Example:

    for each in examine(folder.checkpoints, contents=True):
        print(each.path.name, each.size, each.problem or "whole")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import CheckpointError
from slime_core.run import list_checkpoints, verify
from slime_core.run.checkpoint import MANIFEST, remove_checkpoint


@dataclass(frozen=True, slots=True)
class Examined:
    """One checkpoint."""

    path: Path
    """Its directory."""
    size: int
    """Bytes of its files."""
    written: float
    """When it was complete, in seconds since 1970; for one without a manifest, when its directory changed."""
    verified: bool
    """Whether its files' contents were compared, or their sizes alone."""
    problem: str
    """What is damaged; empty when nothing was found."""


def examine(root: Path, *, contents: bool) -> list[Examined]:
    """Look at every checkpoint in a run's `checkpoints`, oldest first; one that goes away meanwhile is left out."""
    return [found for path in list_checkpoints(root) if (found := _examine(path, contents)) is not None]


def prune(root: Path, keep: int) -> Sequence[Path]:
    """Remove checkpoints that are older than the newest `keep` whole ones; a damaged one counts for nothing.

    Returns:
        What was removed: nothing, when there are fewer whole ones.
    """
    whole = 0
    paths = list_checkpoints(root)
    for place in reversed(range(len(paths))):
        if whole == keep:
            for path in paths[: place + 1]:
                remove_checkpoint(path)
            return paths[: place + 1]
        whole += not _problem(paths[place], contents=True)
    return ()


def _examine(path: Path, contents: bool) -> Examined | None:
    problem = _problem(path, contents)
    try:
        manifest = path / MANIFEST
        written = (manifest if manifest.is_file() else path).stat().st_mtime
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except FileNotFoundError:  # a run that goes on has removed it
        return None
    return Examined(path, size, written, contents and not problem, problem)


def _problem(path: Path, contents: bool) -> str:
    try:
        verify(path, contents)
    except CheckpointError as error:
        return str(error)
    return ""
