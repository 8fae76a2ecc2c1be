"""HfCopies: the model of each checkpoint in a directory of its own, which stays when the checkpoint is removed.

Files are linked where the storage can, and take no room of their own while the checkpoint is there; copied elsewhere.

Example:

    HfCopies("models/{rollout_id}").keep(checkpoint)            # models/20 is a model directory now
"""

import os
import shutil
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.run.checkpoint import MODEL, Checkpoint
from slime_core.run.saving import put_in_place, sync


class HfCopies:
    """The copies of one run."""

    def __init__(self, template: str) -> None:
        """Into directories of this name, `{rollout_id}` filled in; without one, the newest replaces the others."""
        self._template = template

    def keep(self, checkpoint: Checkpoint) -> Path | None:
        """Copy a finished checkpoint's model; None for the one that training begins with, which is hf_checkpoint.

        Raises:
            RunFolderError: it could not be written; what was there before still is.
        """
        if checkpoint.rollout_id == 0:
            return None
        final = Path(self._template.format(rollout_id=checkpoint.rollout_id)).absolute()
        beside = final.with_name(f".{final.name}.tmp")
        try:
            shutil.rmtree(beside, ignore_errors=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(checkpoint.path / MODEL, beside, copy_function=link_or_copy)
            for path in sorted(beside.rglob("*")):
                sync(path)
            sync(beside)
            put_in_place(final, beside)
        except OSError as error:
            raise RunFolderError(f"cannot write save_hf {final}: {error}; {checkpoint.path} has the model") from error
        return final


def link_or_copy(source: str, target: str) -> None:
    """Make a file of the same contents: a hard link where the storage can, else a copy."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
