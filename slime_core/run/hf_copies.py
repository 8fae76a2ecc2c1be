"""Copies of checkpoints' models, which stay when a checkpoint is removed: for `save_hf`, and for a missing base model.

Files are linked where the storage can, and take no room of their own while the checkpoint is there; copied elsewhere.
A directory that the run did not make is not replaced, and files that a user added to one are kept.

Example:

    HfCopies("models/{rollout_id}", run_id).keep(checkpoint)    # models/20 is a model directory now
"""

import glob
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from slime_core.config import RunConfig
from slime_core.errors import ConfigError, RunFolderError
from slime_core.outputs import made_by, mark_made, real, refuse_occupied
from slime_core.run.checkpoint import MODEL, Checkpoint, list_checkpoints, newest_checkpoint
from slime_core.run.saving import put_in_place, sync

OWN_MODEL = "model"
"""In a run folder: checkpoints are removed as the run goes on, and this stays."""


class HfCopies:
    """The copies of one run."""

    def __init__(self, template: str, run_id: str = "none") -> None:
        """Into directories of this name, `{rollout_id}` filled in; without one, the newest replaces the others.

        Args:
            template: of their path.
            run_id: number of the run, by which it knows what it made.
        """
        self._template, self._run_id = template, run_id

    def keep(self, checkpoint: Checkpoint) -> Path | None:
        """Copy a finished checkpoint's model; None for the one that training begins with, which is hf_checkpoint.

        Raises:
            RunFolderError: it could not be written; what was there before still is.
        """
        if checkpoint.rollout_id == 0:
            return None
        final = real(self._template.format(rollout_id=checkpoint.rollout_id))
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            self._clear_unfinished(final)
            refuse_occupied(f"save_hf = {self._template!r}", final, self._run_id)
            self._replace(final, checkpoint.path / MODEL)
        except (OSError, ConfigError) as error:
            raise RunFolderError(f"cannot write save_hf {final}: {error}; {checkpoint.path} has the model") from error
        return final

    def _replace(self, final: Path, model: Path) -> None:
        beside = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
        try:
            mark_made(beside, self._run_id)
            new = beside / "new"
            shutil.copytree(model, new, copy_function=_link_or_copy)
            mark_made(new, self._run_id)
            if final.is_dir():
                _keep_foreign(final, new)
            for path in (*sorted(new.rglob("*")), new):
                sync(path)
            if final.exists():
                final.rename(beside / "old")
            new.rename(final)
            sync(final.parent)
        finally:
            self._clear_unfinished(final)

    def _clear_unfinished(self, final: Path) -> None:
        """Remove what this run left half-done; a kill between two renames has left what was there before as `old`."""
        for beside in final.parent.glob(f".{glob.escape(final.name)}.*"):
            if made_by(beside)[0] == self._run_id:
                if not final.exists() and (beside / "old").exists():
                    (beside / "old").rename(final)
                shutil.rmtree(beside, ignore_errors=True)


def _keep_foreign(old: Path, new: Path) -> None:
    """What a user added to a directory, into the one that takes its place."""
    for each in old.iterdir():
        if each.name in made_by(old)[1] or (new / each.name).exists():
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.copytree(each, new / each.name, symlinks=True, copy_function=_link_or_copy)
        else:
            shutil.copy2(each, new / each.name, follow_symlinks=False)


def _link_or_copy(source: str, target: str) -> None:
    """Make a file of the same contents: a hard link where the storage can, else a copy."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def with_own_model(config: RunConfig) -> RunConfig:
    """The configuration with the model of the run's newest checkpoint where hf_checkpoint is gone.

    Its tokenizer and its shape are those of hf_checkpoint; the trainer loads its weights from the checkpoint anyway.

    Raises:
        CheckpointError: no checkpoint is whole.
        RunFolderError: the run folder cannot be written.
    """
    named, own = config.run.hf_checkpoint, config.run.save / OWN_MODEL
    if named.exists():
        return config
    if not own.exists():
        checkpoints = config.run.save / "checkpoints"
        newest = newest_checkpoint(checkpoints, _ignore) if list_checkpoints(checkpoints) else None
        if newest is None or not (newest.path / MODEL).is_dir():
            return config
        beside = own.with_name(f".{OWN_MODEL}.tmp")
        try:
            shutil.rmtree(beside, ignore_errors=True)
            shutil.copytree(newest.path / MODEL, beside, copy_function=_link_or_copy)
            put_in_place(own, beside)
        except OSError as error:
            raise RunFolderError(f"cannot write {own}, a copy of {newest.path / MODEL}: {error.strerror}") from error
    return replace(config, run=config.run.model_copy(update={"hf_checkpoint": own}), missing_model=named)


def _ignore(text: str) -> None:
    """Name no damaged checkpoint: the run itself does."""
