"""Checkpoints: their files and schemas, how to write one in the background, and how to find and verify one.

A checkpoint is complete or absent. A save takes a snapshot, then checksums, fsyncs and renames it in a thread while
the run continues. Old checkpoints are removed, except the best one, to which a link points. A damaged checkpoint is
reported, and the previous one is used.

Example:

    checkpoints/rollout_000020/
        manifest.json    every file with its size and SHA-256
        state.json       data cursor, buffer, ledger, positions, plugin lock, config
        hf/              the model in HF format, unless checkpoint_hf = false
        optim/           the optimizer

    saver = Saver(folder.checkpoints, keep=2)
    await saver.save(20, state, trainer.save, trainer.finish_save)      # returns after the snapshot
    checkpoint = await saver.finished(wait=True)                        # complete and renamed; raises if that failed
"""

import asyncio
import errno
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, NonNegativeInt, ValidationError

from slime_core.errors import CheckpointError, ConfigError, RunFolderError, WorkerError
from slime_core.outputs import check_tree, inside, mark_made, nofollow, open_nofollow, real, refuse_occupied
from slime_core.run.ledger import LedgerPosition, Sha256
from slime_core.sample import Json
from slime_core.telemetry import run_folder_errors

MANIFEST = "manifest.json"
STATE = "state.json"
MODEL = "hf"
SCHEMA_VERSION = 1
OWN_DEPTH = 3
"""Path components of a checkpoint file inside the run folder, as in checkpoints/rollout_000020/state.json."""
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
"""Errno values whose text in a worker's message means storage failed."""


class _Schema(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class CheckpointFile(_Schema):
    """Size in bytes and checksum of a file."""

    bytes: NonNegativeInt
    sha256: Sha256


class Manifest(_Schema):
    """manifest.json: all other files of a checkpoint, by path in it."""

    schema_version: int
    """Schema version of both files."""
    rollout_id: NonNegativeInt
    """Number of rollouts that the checkpoint contains."""
    files: dict[str, CheckpointFile]


class CheckpointState(_Schema):
    """state.json. Buffer, data source and scheduler check their own parts; a loop may add others."""

    model_config = ConfigDict(extra="allow")

    step: NonNegativeInt
    """Optimizer steps done."""
    metrics_position: NonNegativeInt
    """Size in bytes of metrics.jsonl."""
    plugins: dict[str, JsonValue]
    """Plugin versions, by the choices that use them."""
    config: dict[str, JsonValue]
    """Configuration of the run."""
    day: date | None = None
    """Date that chat templates insert: the date of the run's first start."""
    data_source: dict[str, JsonValue] | None = None
    """State of the data source. It and the next two exist only in a run that generates."""
    scheduler: dict[str, JsonValue] | None = None
    """Unfinished work."""
    buffer: dict[str, JsonValue] | None = None
    """Groups that wait for training."""
    train_steps: NonNegativeInt | None = None
    """Optimizer steps of the whole run, for the learning rate's decay; None: unknown."""
    ledger: LedgerPosition | None = None
    """The ledger's lines at this checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Number of rollouts that it contains."""

    def state(self) -> CheckpointState:
        """Return the driver's state.

        Raises:
            CheckpointError: the file is damaged or has another schema.
        """
        with _damage(self.path, STATE):
            return CheckpointState.model_validate_json(_read(self.path, STATE))


def list_checkpoints(root: Path) -> list[Path]:
    """Return checkpoint directories, oldest first, without checks."""
    found = [(int(match[1]), path) for path in root.glob("rollout_*") if (match := _name(path))]
    return [path for _, path in sorted(found)]


def newest_checkpoint(root: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, and report each damaged one. None if there are no checkpoints.

    Raises:
        CheckpointError: all checkpoints are damaged.
    """
    problems = []
    for path in reversed(list_checkpoints(root)):
        try:
            return verify(path)
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
            problems.append(str(error))
    if problems:
        raise CheckpointError("no usable checkpoint: " + "; ".join(problems))
    return None


def verify(path: Path, contents: bool = True) -> Checkpoint:
    """Check every file of a checkpoint against its manifest; without `contents`, check only sizes.

    Raises:
        CheckpointError: a file is missing or differs; the message names it.
    """
    manifest, name = read_manifest(path), _name(path)
    if STATE not in manifest.files or not name or int(name[1]) != manifest.rollout_id:
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest is for rollout {manifest.rollout_id}")
    for file, expected in manifest.files.items():
        with _damage(path):
            inside(path, file)
        if not (path / file).is_file():
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is missing")
        if (path / file).stat().st_size != expected.bytes or (contents and describe_file(path / file) != expected):
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is not what was written")
    checkpoint = Checkpoint(path, manifest.rollout_id)
    if contents:
        checkpoint.state()
    return checkpoint


def read_manifest(path: Path) -> Manifest:
    """A checkpoint's manifest.

    Raises:
        CheckpointError: it cannot be read.
    """
    with _damage(path, MANIFEST):
        found = json.loads(_read(path, MANIFEST))
        version = found.get("schema_version") if isinstance(found, dict) else None
        if isinstance(version, int) and version != SCHEMA_VERSION:
            raise CheckpointError(
                f"checkpoint {path} has schema version {version}, and this release reads {SCHEMA_VERSION}"
            )
        return Manifest.model_validate(found)


def _read(path: Path, name: str) -> bytes:
    with open_nofollow(path / name, OWN_DEPTH) as file:
        return file.read()


@contextmanager
def _damage(path: Path, file: str = "") -> Iterator[None]:
    """Turn an error of reading into one that names the checkpoint and the file."""
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, ValueError, RecursionError, RunFolderError) as error:
        problem = first_problem(error)
        raise CheckpointError(f"checkpoint {path} is damaged: {file}{': ' * bool(file)}{problem}") from None


def first_problem(error: Exception) -> str:
    """Return an error, or the first of several validation errors, on one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def model_of(path: Path) -> Path:
    """Return the model directory of a checkpoint, in HF format.

    Raises:
        CheckpointError: the checkpoint has no model, or links lead out of it.
    """
    with _damage(path):
        check_tree(nofollow(path / MODEL, OWN_DEPTH))
    if (path / MODEL / "config.json").is_file():
        return path / MODEL
    raise CheckpointError(
        f"checkpoint {path} has no model in HF format: its run has checkpoint_hf = false. It continues with `slime "
        "resume`; for the model, set checkpoint_hf = true and save one more, or give a model with --hf-checkpoint"
    )


def describe_file(file: Path) -> CheckpointFile:
    """Return a file's entry in the manifest."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return CheckpointFile(bytes=file.stat().st_size, sha256=digest.hexdigest())


def remove_checkpoint(path: Path, renamed: Path | None = None) -> None:
    """Rename a checkpoint to `renamed`, then remove its files; a kill in between leaves no damaged checkpoint."""
    renamed = renamed or path.with_name(f".{path.name}.old.tmp")
    shutil.rmtree(renamed, ignore_errors=True)  # left by an earlier kill
    with suppress(OSError):
        path.rename(renamed)
        shutil.rmtree(renamed)


def clear_unfinished(root: Path) -> None:
    """Remove the unfinished directories of a killed process; none of them has a checkpoint's name."""
    for stale in root.glob(".rollout_*.tmp"):
        shutil.rmtree(stale)


def _name(path: Path) -> re.Match[str] | None:
    """Match a checkpoint directory's name, with its number."""
    return re.fullmatch(r"rollout_(\d+)", path.name) if path.is_dir() else None


SaveModel = Callable[[Path], Awaitable[None]]
"""Makes a trainer copy its state into a directory; the files may be written later."""
FinishModel = Callable[[bool], Awaitable[bool]]
"""Returns whether the trainer has written all files; with True, waits for them."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A checkpoint that is not complete yet."""

    final: Path
    temporary: Path
    rollout_id: int
    finish_model: FinishModel
    end_of_turn: int | None
    is_best: bool


class Saver:
    """Writes the checkpoints of one run, at most one at a time."""

    def __init__(self, root: Path, keep: int, best: Path | None = None) -> None:
        """Write to `root`; keep the newest `keep` checkpoints and the one that the link `best` points to."""
        self._root, self._keep, self._best = root, keep, best
        self._snapshot: _Snapshot | None = None
        self._sealing: asyncio.Task[Checkpoint] | None = None
        self._abandoned = threading.Event()

    def path_of(self, rollout_id: int) -> Path:
        """Return the path of the checkpoint after `rollout_id` rollouts."""
        return self._root / f"rollout_{rollout_id:06d}"

    async def save(
        self,
        rollout_id: int,
        state: Mapping[str, Json],
        save_model: SaveModel,
        finish_model: FinishModel,
        *,
        end_of_turn: int | None = None,
        is_best: bool = False,
    ) -> None:
        """Take a snapshot after `rollout_id` rollouts; `finished` completes it and returns the checkpoint.

        Completing it removes old checkpoints, and newer ones left from before a resume. With `is_best`, the link `best`
        then points to it. `end_of_turn` is added to the end ids in generation_config.json.

        Raises:
            RunFolderError: the disk is full or read-only; the message names the previous checkpoint, which remains.
            WorkerError: the trainer failed for another reason.
        """
        assert self._snapshot is None, "finish the checkpoint before it first"
        final = self.path_of(rollout_id)
        temporary = self._root / f".{final.name}.tmp"
        with _storage_errors(final, temporary):
            clear_unfinished(self._root)
            temporary.mkdir(parents=True)
            await save_model(temporary)
            (temporary / STATE).write_text(json.dumps(state), encoding="utf-8")
        self._snapshot = _Snapshot(final, temporary, rollout_id, finish_model, end_of_turn, is_best)

    async def finished(self, *, wait: bool) -> Checkpoint | None:
        """Return the checkpoint that became complete since the last call, or None; with `wait`, wait for it.

        Raises:
            RunFolderError: the checkpoint could not be completed.
            WorkerError: the trainer could not write it.
        """
        if (snapshot := self._snapshot) is None:
            return None
        try:
            if self._sealing is None:
                with _storage_errors(snapshot.final, snapshot.temporary):
                    if not await snapshot.finish_model(wait):
                        return None
                self._sealing = asyncio.create_task(asyncio.to_thread(self._seal, snapshot))
            if not (wait or self._sealing.done()):
                return None
            checkpoint = await asyncio.shield(self._sealing)
        except Exception:
            self._snapshot = self._sealing = None
            raise
        self._snapshot = self._sealing = None
        return checkpoint

    async def close(self, *, at_once: bool) -> str:
        """Complete the last checkpoint of a failed run, or abandon it `at_once`; returns what went wrong, or ""."""
        if at_once:
            self._abandoned.set()
            if self._snapshot is not None and self._sealing is None:
                return f"checkpoint {self._snapshot.final.name} was not finished"
        try:
            await self.finished(wait=True)
        except (RunFolderError, WorkerError) as error:
            return str(error)
        return ""

    def _seal(self, snapshot: _Snapshot) -> Checkpoint:
        """Checksum and sync every file, write the manifest, and move the checkpoint to its name. Runs in a thread."""
        final, directory = snapshot.final, snapshot.temporary
        with _storage_errors(final, directory):
            files = dict[str, CheckpointFile]()
            if snapshot.end_of_turn is not None:
                _add_end_id(directory / MODEL, snapshot.end_of_turn)
            for path in sorted(directory.rglob("*")):
                if self._abandoned.is_set():
                    raise RunFolderError(f"checkpoint {final.name} was not finished")
                if path.is_file():
                    files[path.relative_to(directory).as_posix()] = describe_file(path)
                sync(path)
            manifest = Manifest(schema_version=SCHEMA_VERSION, rollout_id=snapshot.rollout_id, files=files)
            (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
            sync(directory / MANIFEST)
            sync(directory)
            _move(directory, final)
        if snapshot.is_best and self._best is not None:
            link_to(final, self._best)
        self._prune(final)
        return Checkpoint(final, snapshot.rollout_id)

    def _prune(self, newest: Path) -> None:
        paths, best = list_checkpoints(self._root), self._best.resolve() if self._best else None
        place = paths.index(newest)
        older = [path for path in paths[: max(0, place + 1 - self._keep)] if path.resolve() != best]
        for path in (*older, *paths[place + 1 :]):
            remove_checkpoint(path)


@contextmanager
def _storage_errors(final: Path, temporary: Path) -> Iterator[None]:
    """After an error, remove the unfinished checkpoint. A storage error becomes one that names what remains."""
    try:
        yield
    except (OSError, WorkerError) as error:
        free = f" ({shutil.disk_usage(final.parent).free / 2**20:.1f} MiB free)" if final.parent.exists() else ""
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            why: str | None = error.strerror or str(error)
        else:
            why = next((each for each in map(os.strerror, STORAGE_ERRORS) if each in str(error)), None)
        if why is None:
            raise
        before = list_checkpoints(final.parent)
        kept = (
            f"{before[-1].name} is untouched: make room and continue from it" if before else "there is no earlier one"
        )
        raise RunFolderError(f"cannot write checkpoint {final}: {why}{free}; {kept}") from error


def sync(path: Path) -> None:
    """Wait until a file or a directory is on disk (fsync).

    Raises:
        OSError: the storage reported an error.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(temporary: Path, final: Path) -> None:
    """Rename a finished directory to its final name, replacing an older one."""
    remove_checkpoint(final, temporary.with_name(f"{temporary.name}.old.tmp"))
    temporary.rename(final)
    sync(final.parent)


def link_to(target: Path, link: Path) -> None:
    """Create or replace a symbolic link to a directory.

    Raises:
        RunFolderError: the storage reported an error, or a directory has the link's name.
    """
    with run_folder_errors(link, "write"):
        temporary = link.with_name(f".{link.name}.tmp")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(target, link.parent))
        temporary.replace(link)


def _add_end_id(model: Path, end: int) -> None:
    """Add an end id to generation_config.json of a model directory, next to the ids that the trainer wrote."""
    config, generation = (
        json.loads(path.read_text("utf-8")) if path.is_file() else {}
        for path in (model / "config.json", model / "generation_config.json")
    )
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if config and end not in ends:
        generation["eos_token_id"] = [*ends, end] if ends else end
        (model / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def copy_model(checkpoint: Checkpoint, template: str, run_id: str) -> Path | None:
    """Copy a finished checkpoint's model for `save_hf`; None for the checkpoint before any training.

    The template's path replaces a directory that the run with this id created. Copies are hard links where possible.

    Raises:
        RunFolderError: the copy could not be written.
    """
    if checkpoint.rollout_id == 0:
        return None
    final = real(template.format(rollout_id=checkpoint.rollout_id))
    temporary = final.with_name(f".{final.name}.{run_id}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        refuse_occupied(f"save_hf = {template!r}", final, run_id)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(checkpoint.path / MODEL, temporary, copy_function=_link_or_copy)
        mark_made(temporary, run_id)
        for path in (*sorted(temporary.rglob("*")), temporary):
            sync(path)
        _move(temporary, final)
    except (OSError, ConfigError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunFolderError(f"cannot write save_hf {final}: {error}; {checkpoint.path} has the model") from error
    return final


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
