"""Missing model: a run whose hf_checkpoint is gone continues with the model of its newest checkpoint.

Example:

    config = with_own_model(config)         # as it was, unless the directory is missing and the run has checkpoints
"""

import shutil
from dataclasses import replace

from slime_core.config import RunConfig
from slime_core.errors import RunFolderError
from slime_core.run.checkpoint import MODEL, list_checkpoints, newest_checkpoint
from slime_core.run.hf_copies import link_or_copy
from slime_core.run.saving import put_in_place

FOLDER = "model"
"""In a run folder: checkpoints are removed as the run goes on, and this stays."""


def with_own_model(config: RunConfig) -> RunConfig:
    """The configuration with the model of the run's newest checkpoint where hf_checkpoint is gone.

    Its tokenizer and its shape are those of hf_checkpoint; the trainer loads its weights from the checkpoint anyway.

    Raises:
        CheckpointError: no checkpoint is whole.
        RunFolderError: the run folder cannot be written.
    """
    named, own = config.run.hf_checkpoint, config.run.save / FOLDER
    if named.exists():
        return config
    if not own.exists():
        checkpoints = config.run.save / "checkpoints"
        newest = newest_checkpoint(checkpoints, _ignore) if list_checkpoints(checkpoints) else None
        if newest is None or not (newest.path / MODEL).is_dir():
            return config
        beside = own.with_name(f".{FOLDER}.tmp")
        try:
            shutil.rmtree(beside, ignore_errors=True)
            shutil.copytree(newest.path / MODEL, beside, copy_function=link_or_copy)
            put_in_place(own, beside)
        except OSError as error:
            raise RunFolderError(f"cannot write {own}, a copy of {newest.path / MODEL}: {error.strerror}") from error
    return replace(config, run=config.run.model_copy(update={"hf_checkpoint": own}), missing_model=named)


def _ignore(text: str) -> None:
    """Name no damaged checkpoint: the run itself does."""
