"""Writes checkpoints in the background, and copies models for `save_hf`.

A save takes a snapshot, then checksums, fsyncs and renames it in a thread while the run continues. Old checkpoints are
removed, except the best one, to which a link points. Copies are hard links where the storage allows them.

Example:

    saver = Saver(folder.checkpoints, keep=2)
    await saver.save(20, state, trainer.save)       # returns after the snapshot; the previous one is still the newest
    checkpoint = await saver.saved(wait=True)       # complete and renamed; raises if that failed
"""

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from slime_core.errors import ConfigError, RunFolderError, WorkerError
from slime_core.outputs import mark_made, real, refuse_occupied
from slime_core.run.checkpoint import (
    MANIFEST,
    MODEL,
    STATE,
    Checkpoint,
    clear_unfinished,
    describe_file,
    list_checkpoints,
    remove_checkpoint,
)
from slime_core.run.ledger import SCHEMA_VERSION, Manifest, SavedFile
from slime_core.sample import Json
from slime_core.telemetry import run_folder_errors

SaveModel = Callable[[Path], Awaitable[None]]
"""Makes a trainer copy its state into a directory; the files may be written later."""


class FinishModel(Protocol):
    """Reports whether the trainer has written all files."""

    async def __call__(self, *, wait: bool) -> bool:
        """Return whether all files are written; with `wait`, wait for them."""
        ...


async def stands(*, wait: bool) -> bool:
    """Return True, for a `SaveModel` that returns only after all files are written."""
    return True


class Saver:
    """Writes the checkpoints of one run, at most one at a time."""

    def __init__(self, root: Path, keep: int, best: Path | None = None) -> None:
        """Write to `root`; keep the newest `keep` checkpoints and the one that the link `best` points to."""
        self._root, self._keep, self._best = root, keep, best
        self._final = root  # path of the snapshot that is being finished
        self._begin: Callable[[bool], Awaitable[bool]] | None = None
        self._finishing: asyncio.Task[Checkpoint] | None = None
        self._given_up = threading.Event()

    def path_of(self, rollout_id: int) -> Path:
        """Return the path of the checkpoint after `rollout_id` rollouts."""
        return self._root / f"rollout_{rollout_id:06d}"

    async def save(
        self,
        rollout_id: int,
        state: Mapping[str, Json],
        save_model: SaveModel,
        finish_model: FinishModel = stands,
        *,
        end_of_turn: int | None = None,
        is_best: bool = False,
    ) -> None:
        """Take a snapshot and begin to finish it; `saved` returns the checkpoint.

        If the model's files are not written yet, a later `saved` continues. Finishing removes old checkpoints,
        and later ones, which an earlier resume has abandoned. `end_of_turn` is added to the end ids of the model's
        generation_config.json. With `is_best`, the link `best` then points to this checkpoint.

        Raises:
            RunFolderError: the disk is full or read-only; the message names the previous checkpoint, which remains.
            WorkerError: the trainer failed for another reason.
        """
        assert self._begin is None, "ask for the checkpoint before it first"
        assert self._finishing is None, "ask for the checkpoint before it first"
        final = self._final = self.path_of(rollout_id)
        beside = self._root / f".{final.name}.tmp"
        with _explaining(final, beside):
            clear_unfinished(self._root)
            beside.mkdir(parents=True)
            await save_model(beside)
            (beside / STATE).write_text(json.dumps(state), encoding="utf-8")

        def finish() -> Checkpoint:
            with _explaining(final, beside):
                self._seal(beside, rollout_id, end_of_turn)
                put_in_place(final, beside)
            if is_best and self._best is not None:
                point(self._best, final)
            _prune(final, self._keep, self._best)
            return Checkpoint(final, rollout_id)

        async def begin(wait: bool) -> bool:
            with _explaining(final, beside):
                if written := await finish_model(wait=wait):
                    self._finishing = asyncio.create_task(asyncio.to_thread(finish))
            return written

        self._begin = begin
        await self._try_begin(wait=False)

    async def _try_begin(self, *, wait: bool) -> None:
        begin, self._begin = self._begin, None
        if begin is not None and not await begin(wait):
            self._begin = begin

    async def saved(self, *, wait: bool) -> Checkpoint | None:
        """Return the checkpoint that finished since the last call, or None; with `wait`, wait for an unfinished one.

        Raises:
            RunFolderError: the checkpoint could not be finished.
            WorkerError: the trainer could not write it.
        """
        await self._try_begin(wait=wait)
        finishing = self._finishing
        if finishing is None or not (wait or finishing.done()):
            return None
        try:
            return await asyncio.shield(finishing)
        finally:
            if finishing.done():
                self._finishing = None

    async def close(self, *, at_once: bool) -> str:
        """Finish the last checkpoint of a failed run, or abandon it `at_once`; returns what went wrong, or ""."""
        if at_once:
            self._given_up.set()
            if self._begin is not None:
                return self._unfinished
        try:
            await self.saved(wait=True)
        except (RunFolderError, WorkerError) as error:
            return str(error)
        return ""

    @property
    def _unfinished(self) -> str:
        return f"checkpoint {self._final.name} was not finished"

    def _seal(self, directory: Path, rollout_id: int, end_of_turn: int | None) -> None:
        """Checksum and sync every file, then write the manifest."""
        files = dict[str, SavedFile]()
        if end_of_turn is not None:
            _add_end(directory / MODEL, end_of_turn)
        for path in sorted(directory.rglob("*")):
            if self._given_up.is_set():
                raise RunFolderError(self._unfinished)
            if path.is_file():
                files[path.relative_to(directory).as_posix()] = describe_file(path)
            sync(path)
        manifest = Manifest(schema_version=SCHEMA_VERSION, rollout_id=rollout_id, files=files)
        (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        sync(directory / MANIFEST)
        sync(directory)


@contextmanager
def _explaining(final: Path, beside: Path) -> Iterator[None]:
    """Turn a storage error into one that explains it, and remove the unfinished checkpoint."""
    try:
        yield
    except (OSError, WorkerError) as error:
        explained = _explain(error, final)
        shutil.rmtree(beside, ignore_errors=True)
        if explained:
            raise RunFolderError(explained) from error
        raise


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


def put_in_place(final: Path, beside: Path) -> None:
    """Rename a finished directory to its final name, replacing an older one.

    Raises:
        OSError: the storage reported an error.
    """
    remove_checkpoint(final, beside.with_name(f"{beside.name}.old.tmp"))
    beside.rename(final)
    sync(final.parent)


def point(link: Path, target: Path) -> None:
    """Create or replace a symbolic link to a directory.

    Raises:
        RunFolderError: the storage reported an error, or a directory has the link's name.
    """
    with run_folder_errors(link, "write"):
        beside = link.with_name(f".{link.name}.tmp")
        beside.unlink(missing_ok=True)
        beside.symlink_to(os.path.relpath(target, link.parent))
        beside.replace(link)


def _prune(newest: Path, keep: int, best: Path | None) -> None:
    paths, spared = list_checkpoints(newest.parent), best.resolve() if best else None
    place = paths.index(newest)
    older = [path for path in paths[: max(0, place + 1 - keep)] if path.resolve() != spared]
    for path in (*older, *paths[place + 1 :]):
        remove_checkpoint(path)


def _explain(error: OSError | WorkerError, final: Path) -> str | None:
    """Explain a storage error and name what remains; None if a worker failed for another reason."""
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


def _add_end(model: Path, end: int) -> None:
    """Add an end id to generation_config.json of a model directory, next to the ids that the trainer wrote.

    Raises:
        OSError: the file cannot be written.
    """
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

    Args:
        checkpoint: checkpoint with the model.
        template: path with `{rollout_id}` to fill in; replaces a directory that the run itself created.
        run_id: identity of the run, which marks its directories.

    Raises:
        RunFolderError: the copy could not be written.
    """
    if checkpoint.rollout_id == 0:
        return None
    final = real(template.format(rollout_id=checkpoint.rollout_id))
    beside = final.with_name(f".{final.name}.{run_id}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        refuse_occupied(f"save_hf = {template!r}", final, run_id)
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(checkpoint.path / MODEL, beside, copy_function=_link_or_copy)
        mark_made(beside, run_id)
        for path in (*sorted(beside.rglob("*")), beside):
            sync(path)
        put_in_place(final, beside)
    except (OSError, ConfigError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise RunFolderError(f"cannot write save_hf {final}: {error}; {checkpoint.path} has the model") from error
    return final


def _link_or_copy(source: str, target: str) -> None:
    """Create a file with the same contents: a hard link if possible, else a copy."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
