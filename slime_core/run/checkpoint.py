"""Checkpoints: complete or absent. Written beside, fsynced, checksummed, renamed; a damaged one is named and skipped.

checkpoints/rollout_000020/
    manifest.json    every file with its size and SHA-256
    state.json       data cursor, buffer, ledger, positions, plugin lock
    hf/              the model in HF format
    optim/           the optimizer
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import CheckpointError, RunFolderError
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


async def write_checkpoint(
    root: Path,
    rollout_id: int,
    state: Mapping[str, Json],
    save_model: Callable[[Path], Awaitable[None]],
    keep: int,
) -> Checkpoint:
    """Write one checkpoint and prune old ones.

    Raises:
        RunFolderError: the disk is full or read-only; what was there before is still there.
    """
    final = root / f"rollout_{rollout_id:06d}"
    beside = root / f".{final.name}.tmp"
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        await save_model(beside)
        (beside / STATE).write_text(json.dumps(state), encoding="utf-8")
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "rollout_id": rollout_id,
            "files": _describe_files(beside),
        }
        (beside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        _sync_tree(beside)
        if final.exists():
            shutil.rmtree(final)
        beside.rename(final)
        _sync(root)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise RunFolderError(_explain(error, final)) from error
    _prune(root, keep)
    return Checkpoint(final, rollout_id)


def list_checkpoints(root: Path) -> list[Path]:
    """Checkpoint directories, oldest first, unverified."""
    return sorted(path for path in root.glob("rollout_*") if path.is_dir())


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


def verify(path: Path) -> Checkpoint:
    """Check every file of a checkpoint against its manifest.

    Raises:
        CheckpointError: a file is missing or differs; names it.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files: dict[str, dict[str, Json]] = manifest["files"]
        version, rollout_id = manifest["schema_version"], int(manifest["rollout_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest cannot be read ({error})") from None
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"checkpoint {path} has schema version {version}, and this release reads {SCHEMA_VERSION}"
        )
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"checkpoint {path} is damaged: {name} is missing")
        if _describe(file) != expected:
            raise CheckpointError(f"checkpoint {path} is damaged: {name} is not what was written")
    return Checkpoint(path, rollout_id)


def _describe_files(directory: Path) -> dict[str, Json]:
    return {
        file.relative_to(directory).as_posix(): _describe(file)
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def _describe(file: Path) -> dict[str, Json]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _sync_tree(directory: Path) -> None:
    for path in (*directory.rglob("*"), directory):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prune(root: Path, keep: int) -> None:
    for path in list_checkpoints(root)[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def _explain(error: OSError, final: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(final.parent).free
        return f"no space for checkpoint {final} ({free / 2**20:.0f} MiB free); the one before it is untouched"
    return f"cannot write checkpoint {final}: {error.strerror}; the one before it is untouched"
