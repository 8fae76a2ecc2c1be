"""Checkpoints on disk: complete or absent. A damaged one is named, and the one before it is used.

checkpoints/rollout_000020/
    manifest.json    every file with its size and SHA-256
    state.json       data cursor, buffer, ledger, positions, plugin lock, config
    hf/              the model in HF format
    optim/           the optimizer
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import CheckpointError
from slime_core.sample import Json

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Rollouts it contains."""

    def state(self) -> dict[str, Json]:
        """What the driver saved."""
        state: dict[str, Json] = json.loads((self.path / STATE).read_text(encoding="utf-8"))
        return state


def list_checkpoints(root: Path) -> list[Path]:
    """Checkpoint directories, oldest first, unverified."""
    found = [(int(match[1]), match[2] is None, path) for path in root.glob("rollout_*") if (match := _name(path))]
    return [path for _, _, path in sorted(found)]


def newest_checkpoint(root: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are reported and passed over. None when there are none at all.

    Raises:
        CheckpointError: there are checkpoints, and all are damaged.
    """
    paths = list_checkpoints(root)
    problems = []
    for path in reversed(paths):
        try:
            return verify(path)
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
            problems.append(str(error))
    if problems:
        raise CheckpointError("no usable checkpoint: " + "; ".join(problems))
    return None


def verify(path: Path, contents: bool = True) -> Checkpoint:
    """Check every file of a checkpoint against its manifest; without `contents`, its size alone.

    Raises:
        CheckpointError: a file is missing or differs; names it.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version = manifest["schema_version"]
        files: dict[str, dict[str, Json]] = dict(manifest["files"])
        rollout_id = int(manifest["rollout_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest cannot be read ({error})") from None
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"checkpoint {path} has schema version {version}, and this release reads {SCHEMA_VERSION}"
        )
    name = _name(path)
    if STATE not in files or not name or int(name[1]) != rollout_id:
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest, of rollout {rollout_id}, is not its own")
    for file, expected in files.items():
        if not (path / file).is_file():
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is missing")
        if (path / file).stat().st_size != expected.get("bytes") or (
            contents and describe_file(path / file) != expected
        ):
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is not what was written")
    return Checkpoint(path, rollout_id)


def describe_file(file: Path) -> dict[str, Json]:
    """A file's entry in the manifest."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def remove_checkpoint(path: Path) -> None:
    """Take a checkpoint's name away, then its files: a kill in between leaves no damaged checkpoint."""
    nameless = path.with_name(f".{path.name}.tmp")
    with suppress(OSError):
        path.rename(nameless)
        shutil.rmtree(nameless)


def clear_unfinished(root: Path) -> None:
    """Remove what a killed process left half-written or half-removed; nothing of it has a checkpoint's name."""
    for stale in root.glob(".rollout_*.tmp"):
        shutil.rmtree(stale)


def _name(path: Path) -> re.Match[str] | None:
    """Number of a checkpoint's directory, and `.old` while its successor takes its place."""
    return re.fullmatch(r"rollout_(\d+)(\.old)?", path.name) if path.is_dir() else None
