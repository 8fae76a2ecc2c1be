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
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import CheckpointError, RunFolderError, WorkerError
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
    """Write one checkpoint and remove old ones, and later ones: these are of a future that was given up.

    Raises:
        RunFolderError: the disk is full or read-only; names the checkpoint that was there before and still is.
        WorkerError: the trainer failed for another reason.
    """
    final = root / f"rollout_{rollout_id:06d}"
    beside = root / f".{final.name}.tmp"
    try:
        clear_unfinished(root)
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
        _replace(final, beside)
    except (OSError, WorkerError) as error:
        explained = _explain(error, final)
        shutil.rmtree(beside, ignore_errors=True)
        if explained:
            raise RunFolderError(explained) from error
        raise
    _prune(root, rollout_id, keep)
    return Checkpoint(final, rollout_id)


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


def verify(path: Path) -> Checkpoint:
    """Check every file of a checkpoint against its manifest.

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
        if _describe(path / file) != expected:
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is not what was written")
    return Checkpoint(path, rollout_id)


def _name(path: Path) -> re.Match[str] | None:
    """Number of a checkpoint's directory, and `.old` while its successor takes its place."""
    return re.fullmatch(r"rollout_(\d+)(\.old)?", path.name) if path.is_dir() else None


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


def clear_unfinished(root: Path) -> None:
    """Remove what a killed process left half-written or half-removed; nothing of it has a checkpoint's name."""
    for stale in root.glob(".rollout_*.tmp"):
        shutil.rmtree(stale)


def _remove(path: Path) -> None:
    """Take a checkpoint's name away, then its files: a kill in between leaves no damaged checkpoint."""
    nameless = path.with_name(f".{path.name}.tmp")
    with suppress(OSError):
        path.rename(nameless)
        shutil.rmtree(nameless)


def _replace(final: Path, beside: Path) -> None:
    """Give a finished directory its name. What had it before is found under another until that is done."""
    old = final.with_name(f"{final.name}.old")
    if final.exists():
        _remove(old)
        final.rename(old)
    beside.rename(final)
    _sync(final.parent)
    _remove(old)


def _prune(root: Path, rollout_id: int, keep: int) -> None:
    paths = list_checkpoints(root)
    newest = paths.index(root / f"rollout_{rollout_id:06d}")
    for path in (*paths[: max(0, newest + 1 - keep)], *paths[newest + 1 :]):
        _remove(path)


def _explain(error: OSError | WorkerError, final: Path) -> str | None:
    """What the storage refused and what is still there; None if a worker failed for another reason."""
    if isinstance(error, OSError):
        refusal: str | None = error.strerror or str(error)
    else:
        refusals = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO))
        refusal = next((each for each in refusals if each in str(error)), None)
    if refusal is None:
        return None
    free = f" ({shutil.disk_usage(final.parent).free / 2**20:.1f} MiB free)" if final.parent.exists() else ""
    before = list_checkpoints(final.parent)
    kept = f"{before[-1].name} is untouched: make room and continue from it" if before else "there is none before it"
    return f"cannot write checkpoint {final}: {refusal}{free}; {kept}"
